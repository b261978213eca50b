package publish

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// eventRequests may wait to be taken in. Each source has one under way.
const eventRequests = 4096

// Events takes what happened in the mesh from edges and stores, over NATS, and publishes it. It is
// a lifecycle.Part; the bus and the appender must be started before it.
type Events struct{ requests }

// NewEvents makes the part for one router. It takes what is sent to any router once ready says nil;
// edges, which know it, ask it before.
func NewEvents(p *Publisher, b *bus.Bus, routerID string, ready func() error) *Events {
	e := &Events{requests{
		publisher: p, bus: b, name: "events", own: bus.RouterEvents(routerID), shared: bus.EventPublish, ready: ready,
		maxPending: eventRequests, replies: make(chan reply, eventRequests),
	}}
	e.handle = e.Take
	return e
}

// Take publishes the events of one meshv1.EventPublish, and has respond called with a
// meshv1.ClientPublishReply.
func (e *Events) Take(data []byte, respond func([]byte) error) {
	var in meshv1.EventPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // the source sends it again
	}
	g := e.beginReply(len(in.GetItems()), respond)
	for i, it := range in.GetItems() {
		key := it.GetDedupeKey()
		if key == "" {
			key = fmt.Sprintf("\x00event/%s/%d/%d", in.GetSource(), in.GetIncarnation(), it.GetNumber())
		}
		switch {
		case e.draining.Load():
			g.Published(uint64(i), refusal(errDraining()))
		case topic.Check(it.GetTopic()) != nil || !events.IsEvent(it.GetTopic()):
			g.Published(uint64(i), refusal(code.New(wirev1.Code_CODE_FORBIDDEN, "not a topic of events")))
		default:
			e.publisher.publishEvent(it.GetTopic(), it.GetEvent(), key, uint64(i), g)
		}
	}
}

// answer takes the result of one message.
type answer chan *Result

func (a answer) Published(_ uint64, res *Result) { a <- res }

// PublishOwn publishes a message of the mesh's own, held by nobody's limits but a part of those of
// all together, and waits for its result.
func (p *Publisher) PublishOwn(ctx context.Context, topic string, payload []byte, key string) error {
	result := make(answer, 1)
	p.publishEvent(topic, payload, key, 0, result)
	select {
	case res := <-result:
		return res.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publishEvent publishes an event: a message of the mesh's own. Nobody's limits hold it but a part
// of those of all together.
func (p *Publisher) publishEvent(topic string, event []byte, key string, ref uint64, to Receiver) {
	now := time.Now()
	pol := p.cfg.Policies.Table().For(topic)
	if pol.Refusal != nil {
		to.Published(ref, refusal(pol.Refusal))
		return
	}
	slot, err := p.cfg.Admission.AdmitSpare(now, admission.Ask{Topic: topic, Durable: pol.Durable, Messages: 1, Bytes: weight(len(event))})
	if err != nil {
		to.Published(ref, refusal(err))
		return
	}
	l := &singleJob{}
	s := &l.message
	m := &Message{Request: &pushmeshv1.PublishRequest{DedupeKey: key}}
	s.publishedAt = uint64(now.UnixMicro())
	if err = p.assignID(m, s); err == nil {
		s.body, err = wire.Body(&wirev1.Message{Payload: event, PublishedAt: s.publishedAt, Id: s.id})
	}
	if err != nil {
		slot.Release()
		to.Published(ref, refusal(code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "event: "+err.Error())))
		return
	}
	p.submit(&l.job, now, m, s, topic, pol, slot, ref, to)
}
