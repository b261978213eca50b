package publish

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Clients takes what edges' clients publish, over NATS. It is a lifecycle.Part; the bus and the appender must be started before it.
type Clients struct {
	publisher *Publisher
	bus       *bus.Bus
	routerID  string
	leave     func()
	group     *lifecycle.Group
	replies   chan reply
	open      atomic.Int64 // requests without a reply
	draining  atomic.Bool
}

// reply to one request, ready to be sent: results come from goroutines that must not wait for NATS.
type reply struct {
	data    []byte
	respond func([]byte) error
}

const (
	// maxRequests of edges may wait to be taken in.
	maxRequests = 16 << 10
	// maxReplies may wait to be sent; beyond it they are dropped, and the edge's request times out.
	maxReplies = 16 << 10
)

// NewClients makes the part for one router.
func NewClients(p *Publisher, b *bus.Bus, routerID string) *Clients {
	return &Clients{publisher: p, bus: b, routerID: routerID, replies: make(chan reply, maxReplies)}
}

// Start subscribes.
func (c *Clients) Start(context.Context) error {
	var err error
	if c.leave, err = c.bus.Subscribe(bus.RouterPublish(c.routerID), maxRequests, c.take); err != nil {
		return err
	}
	c.group = lifecycle.NewGroup(context.Background())
	c.group.Go("client-replies", c.run)
	return nil
}

func (c *Clients) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-c.replies:
			_ = r.respond(r.data) // without NATS the edge's request times out, and it says so to its client
			c.open.Add(-1)
		}
	}
}

// Drain answers DRAINING from now on: edges go to another router.
func (c *Clients) Drain() { c.draining.Store(true) }

// Stop ends the subscription and waits, until ctx ends, for the replies to what was taken.
func (c *Clients) Stop(ctx context.Context) error {
	c.leave()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c.open.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return c.group.Stop(ctx)
}

func (c *Clients) reply(r reply) {
	select {
	case c.replies <- r:
	default:
		c.open.Add(-1)
	}
}

func (c *Clients) take(data []byte, respond func([]byte) error) {
	var in meshv1.ClientPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // nobody can tell which client to answer
	}
	c.open.Add(1)
	r := gather(len(in.GetItems()), func(data []byte) { c.reply(reply{data, respond}) }, func() { c.open.Add(-1) })
	for i, it := range in.GetItems() {
		if c.draining.Load() {
			r.Published(uint64(i), refusal(errDraining()))
			continue
		}
		c.publisher.Publish(&Message{
			Context: context.Background(), Producer: client(it), From: it.GetUser(), FromClient: true,
			Ref: uint64(i), To: r,
			Request: &pushmeshv1.PublishRequest{
				Topic: it.GetTopic(), Payload: it.GetPayload(), Headers: it.GetHeaders(), DedupeKey: it.GetDedupeKey(),
				Traceparent: it.GetTraceparent(),
			},
		})
	}
}
