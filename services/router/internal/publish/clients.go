package publish

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxRequests of edges may wait to be taken in.
const maxRequests = 16 << 10

// Clients takes what edges' clients publish, over NATS. It is a lifecycle.Part; the bus and the appender must be started before it.
type Clients struct{ requests }

// NewClients makes the part for one router.
func NewClients(p *Publisher, b *bus.Bus, routerID string) *Clients {
	c := &Clients{requests{
		publisher: p, bus: b, name: "client-requests", own: bus.RouterPublish(routerID), most: maxRequests, replies: make(chan reply, maxRequests),
	}}
	c.take = c.publish
	return c
}

func (c *Clients) publish(data []byte, respond func([]byte) error) {
	var in meshv1.ClientPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // nobody can tell which client to answer
	}
	r := c.begin(len(in.GetItems()), respond)
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
