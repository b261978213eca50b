package promise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/test/closing"
)

// Crowd is many topics, of which each is published to now and then: enough that shards take a while
// to load, and their checkpoints to fold. Nobody subscribes: what is compared is the numbers that
// publishes are answered with.
type Crowd struct {
	Routers []string
	Prefix  string
	Topics  int
	Rand    *rand.Rand

	producers []*pushmesh.Producer // a topic has one of them
	run       sync.WaitGroup
	stop      context.CancelFunc
	failed    error // of what runs

	mu       sync.Mutex
	last     []place // the greatest that a message of each topic was acknowledged at
	seen     map[crowdPlace]bool
	breaches []string
}

// crowdPlace is a place in a topic of a crowd.
type crowdPlace struct {
	topic      int
	epoch, seq uint64
}

const (
	// crowdProducers share the topics, since a producer remembers each of its own.
	crowdProducers = 4
	// crowdAtATime is how many publishes have no answer yet, at most.
	crowdAtATime = 2000
)

// Seed publishes to every topic once, as fast as it is answered.
func (c *Crowd) Seed(ctx context.Context) error {
	for range crowdProducers {
		p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: c.Routers, MaxBackoff: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		c.producers = append(c.producers, p)
	}
	c.last, c.seen = make([]place, c.Topics), make(map[crowdPlace]bool, 2*c.Topics)
	return c.publish(ctx, c.Topics, 0, func(i int) int { return i })
}

// Start goes on publishing to random topics, rate messages a second, until End.
func (c *Crowd) Start(ctx context.Context, rate int) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.run.Go(func() {
		for ctx.Err() == nil && c.failed == nil {
			c.failed = c.publish(ctx, rate, time.Second, func(int) int { return c.Rand.IntN(c.Topics) })
		}
	})
}

// End publishes once more to every topic, and names what was answered that can't be: a seq twice,
// or one that is not above what was acknowledged before the message was published.
func (c *Crowd) End(ctx context.Context) (breaches []string, answered int, err error) {
	c.stop()
	c.run.Wait()
	if c.failed == nil {
		c.failed = c.publish(ctx, c.Topics, 0, func(i int) int { return i })
	}
	for _, p := range c.producers {
		c.failed = errors.Join(c.failed, closing.Within(p, settleWithin))
	}
	return c.breaches, len(c.seen), c.failed
}

// publish n messages within span, or as fast as can be, and wait for their answers.
func (c *Crowd) publish(ctx context.Context, n int, span time.Duration, topic func(i int) int) error {
	slots := make(chan struct{}, crowdAtATime)
	defer func() { // every message is answered in the end
		for range crowdAtATime {
			slots <- struct{}{}
		}
	}()
	began := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		t := topic(i)
		slots <- struct{}{}
		before := c.reached(t)
		// Not ctx: what is offered is answered.
		err := c.producers[t%len(c.producers)].PublishAsync(context.WithoutCancel(ctx), pushmesh.Message{Topic: c.name(t), Payload: []byte("x")}, func(res pushmesh.Result, err error) {
			if err == nil {
				c.acknowledged(before, crowdPlace{t, res.Epoch, res.Seq})
			}
			<-slots
		})
		if err != nil {
			<-slots
			return fmt.Errorf("publish to %s: %w", c.name(t), err)
		}
		if ahead := span*time.Duration(i)/time.Duration(n) - time.Since(began); ahead > 5*time.Millisecond {
			select {
			case <-time.After(ahead):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (c *Crowd) name(i int) string { return fmt.Sprintf("%s/crowd/%d", c.Prefix, i) }

// reached is what was acknowledged of a topic so far.
func (c *Crowd) reached(i int) place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[i]
}

// acknowledged compares with what was reached before the message was published, and with every
// answer.
func (c *Crowd) acknowledged(before place, at crowdPlace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.epoch < before.epoch || at.epoch == before.epoch && at.seq <= before.seq {
		c.breaches = append(c.breaches, fmt.Sprintf("%s: answered epoch %d seq %d after epoch %d seq %d", c.name(at.topic), at.epoch, at.seq, before.epoch, before.seq))
	}
	if c.seen[at] {
		c.breaches = append(c.breaches, fmt.Sprintf("%s: two messages were answered epoch %d seq %d", c.name(at.topic), at.epoch, at.seq))
	}
	c.seen[at] = true
	if last := c.last[at.topic]; last.epoch < at.epoch || last.epoch == at.epoch && last.seq < at.seq {
		c.last[at.topic] = place{epoch: at.epoch, seq: at.seq}
	}
}
