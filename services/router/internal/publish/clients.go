package publish

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// maxRequests of edges may wait to be taken in.
	maxRequests = 16 << 10
	// patience is how long a request's messages wait for their producer's own limits before they
	// are refused. A client's whole window of 64, sent at once, is let in within that where its
	// share of the rate is 64 a second or more; and it is well below what an edge waits for an
	// answer.
	patience = time.Second
	// mostPatient bytes of requests may wait so; those beyond are refused at once.
	mostPatient = 64 << 20
)

// Clients takes what edges' clients publish, over NATS. It is a lifecycle.Part; the bus and the
// appender must be started before it.
type Clients struct {
	requests
	patient atomic.Int64 // bytes of requests that wait for their producers' limits

	wake  chan struct{} // 1: due is not empty
	mu    sync.Mutex
	again []*clientRequest // in the order in which they are to go on; each stands there once
}

// NewClients makes the part for one router.
func NewClients(p *Publisher, b *bus.Bus, routerID string) *Clients {
	c := &Clients{
		requests: requests{
			publisher: p, bus: b, name: "client-requests", own: bus.RouterPublish(routerID), maxPending: maxRequests, replies: make(chan reply, maxRequests),
		},
		wake: make(chan struct{}, 1),
	}
	c.handle = c.publish
	return c
}

// Start implements lifecycle.Part.
func (c *Clients) Start(ctx context.Context) error {
	if err := c.requests.Start(ctx); err != nil {
		return err
	}
	c.group.Go("client-turns", c.goOn)
	return nil
}

func (c *Clients) publish(data []byte, respond func([]byte) error) {
	in := &meshv1.ClientPublish{}
	if err := proto.Unmarshal(data, in); err != nil || len(in.GetItems()) == 0 {
		return // nobody can tell which client to answer
	}
	t := &clientRequest{clients: c, items: in.GetItems(), size: int64(len(data)), until: time.Now().Add(patience), to: c.beginReply(len(in.GetItems()), respond)}
	t.to.delay()
	t.run()
}

// ready has a turn go on, in the goroutine that is there for it.
func (c *Clients) ready(t *clientRequest) {
	c.mu.Lock()
	c.again = append(c.again, t)
	c.mu.Unlock()
	signal(c.wake)
}

func (c *Clients) goOn(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		turns := c.again
		c.again = nil
		c.mu.Unlock()
		for _, t := range turns {
			t.run()
		}
	}
}
