package publish

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Clients takes what edges' clients publish, over NATS. It is a lifecycle.Part; the bus must be started before it.
type Clients struct {
	publisher *Publisher
	bus       *bus.Bus
	routerID  string
	leave     func()
	draining  atomic.Bool
}

// maxRequests of edges may wait to be taken in.
const maxRequests = 16 << 10

// NewClients makes the part for one router.
func NewClients(p *Publisher, b *bus.Bus, routerID string) *Clients {
	return &Clients{publisher: p, bus: b, routerID: routerID}
}

// Start subscribes.
func (c *Clients) Start(context.Context) error {
	var err error
	c.leave, err = c.bus.Subscribe(bus.RouterPublish(c.routerID), maxRequests, c.take)
	return err
}

// Drain answers DRAINING from now on: edges go to another router.
func (c *Clients) Drain() { c.draining.Store(true) }

// Stop ends the subscription.
func (c *Clients) Stop(context.Context) error {
	c.leave()
	return nil
}

// request gathers the results of one edge's request.
type request struct {
	results []*meshv1.ClientPublishReply_Result
	left    atomic.Int64
	respond func([]byte) error
}

func (c *Clients) take(data []byte, respond func([]byte) error) {
	var in meshv1.ClientPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // nobody can tell which client to answer
	}
	r := &request{results: make([]*meshv1.ClientPublishReply_Result, len(in.GetItems())), respond: respond}
	r.left.Store(int64(len(r.results)))
	for i, it := range in.GetItems() {
		if c.draining.Load() {
			r.Published(uint64(i), refusal(errDraining()))
			continue
		}
		c.publisher.Publish(&Message{
			Context: context.Background(), Producer: "client:" + it.GetClientId(), From: it.GetUser(), FromClient: true,
			Ref: uint64(i), To: r,
			Request: &pushmeshv1.PublishRequest{
				Topic: it.GetTopic(), Payload: it.GetPayload(), Headers: it.GetHeaders(), DedupeKey: it.GetDedupeKey(),
				Traceparent: it.GetTraceparent(),
			},
		})
	}
}

// Published implements Receiver for one item: ref is its place.
func (r *request) Published(ref uint64, res *Result) {
	r.results[ref] = &meshv1.ClientPublishReply_Result{
		Code: res.Code, Error: res.Error, RetryAfterMs: uint32(res.RetryAfter.Milliseconds()),
		Seq: res.Seq, Epoch: res.Epoch, MessageId: res.MessageID, Duplicate: res.Duplicate,
	}
	if r.left.Add(-1) > 0 {
		return
	}
	if reply, err := proto.Marshal(&meshv1.ClientPublishReply{Results: r.results}); err == nil {
		_ = r.respond(reply) // without NATS the edge times out and says so to its client
	}
}
