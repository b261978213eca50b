package honest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/test/load/suite"
)

// Config of a crowd.
type Config struct {
	Edge, Router string // where clients and producers connect to
	Subscribers  int
	// Topics is how many there are of each kind; a subscriber has one of each.
	Topics int
	// LiveRate and DurableRate are messages published in a second to all topics together.
	LiveRate, DurableRate float64
	// Newcomers connect and subscribe once in NewcomersEvery each.
	Newcomers      int
	NewcomersEvery time.Duration
}

// Crowd is the honest users of a mesh. It owns their goroutines.
type Crowd struct {
	cfg                    Config
	times                  [kinds]times
	ends, refused, garbled atomic.Uint64
	subscribers            []*subscriber
	producers              []*producer
	conn                   *grpc.ClientConn

	mu    sync.Mutex
	waits map[uint64]waiting // what was begun and has not ended, by number
	last  uint64

	quiet, leave context.CancelFunc
	publishing   sync.WaitGroup
	running      sync.WaitGroup
}

// LiveTopic and DurableTopic are the nth of their kind.
func LiveTopic(n int) string { return fmt.Sprintf("siege/live/%d", n) }

// DurableTopic is the nth durable one.
func DurableTopic(n int) string { return fmt.Sprintf("room/siege/%d", n) }

// connectWithin bounds how long a crowd may take to be there.
const connectWithin = 3 * time.Minute

// Start has everybody connect and subscribe, and then begins to publish.
func Start(ctx context.Context, cfg Config) (*Crowd, error) {
	conn, err := grpc.NewClient(cfg.Router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	c := &Crowd{cfg: cfg, conn: conn, waits: map[uint64]waiting{}}
	living, leave := context.WithCancel(ctx)
	speaking, quiet := context.WithCancel(living)
	c.leave, c.quiet = leave, quiet
	for n := range cfg.Subscribers {
		c.subscribers = append(c.subscribers, newSubscriber(c, n))
	}
	err = suite.Each(cfg.Subscribers, 16, func(_, i int) error {
		s := c.subscribers[i]
		c.running.Go(func() { s.run(living) })
		select {
		case <-s.ready:
			return nil
		case <-time.After(connectWithin):
			return fmt.Errorf("subscriber %d did not come in within %s", i, connectWithin)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for n := range cfg.Newcomers {
		c.running.Go(func() { c.newcomer(living, n) })
	}
	live, durable := newProducer(c, false, cfg.LiveRate), newProducer(c, true, cfg.DurableRate)
	c.producers = []*producer{live, durable}
	for _, p := range c.producers {
		c.publishing.Go(func() { p.run(speaking) })
	}
	return c, nil
}

// Settle ends publishing, waits until every subscriber has every durable message that was answered,
// and says what is missing otherwise. It says, too, what somebody was told of that will not come.
func (c *Crowd) Settle(ctx context.Context) error {
	c.quiet()
	c.publishing.Wait()
	heads := c.producers[1].heads()
	err := suite.Poll(ctx, connectWithin, func() error {
		missing, behind := 0, ""
		for _, s := range c.subscribers {
			if had := s.had.Load(); had < heads[s.durable] {
				missing++
				behind = fmt.Sprintf("subscriber %d has %s up to %d of %d", s.n, s.durable, had, heads[s.durable])
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d subscribers miss durable messages: %s", missing, behind)
		}
		return nil
	})
	for _, s := range c.subscribers {
		if told := s.lost.Load(); told != nil {
			err = errors.Join(err, fmt.Errorf("subscriber %d was told: %s", s.n, *told))
		}
	}
	return err
}

// Close ends everybody.
func (c *Crowd) Close() error {
	c.leave()
	c.running.Wait()
	c.publishing.Wait()
	return c.conn.Close()
}
