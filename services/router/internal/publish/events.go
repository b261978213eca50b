package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// eventRequests may wait to be taken in. Each source has one under way.
const eventRequests = 4096

// Events takes what happened in the mesh from edges and stores, over NATS, and publishes it. It is a lifecycle.Part; the bus and the appender
// must be started before it.
type Events struct {
	publisher *Publisher
	bus       *bus.Bus
	routerID  string
	ready     func() error
	group     *lifecycle.Group
	replies   chan reply
	leave     func()                 // the subject of this router
	share     atomic.Pointer[func()] // that of all
	open      atomic.Int64           // requests without a reply
	draining  atomic.Bool
}

// NewEvents makes the part for one router. It takes what is sent to any router once ready says nil; edges, which know it, ask it before.
func NewEvents(p *Publisher, b *bus.Bus, routerID string, ready func() error) *Events {
	return &Events{publisher: p, bus: b, routerID: routerID, ready: ready, replies: make(chan reply, eventRequests)}
}

// Start subscribes.
func (e *Events) Start(context.Context) error {
	var err error
	if e.leave, err = e.bus.Subscribe(bus.RouterEvents(e.routerID), eventRequests, e.Take); err != nil {
		return err
	}
	e.group = lifecycle.NewGroup(context.Background())
	e.group.Go("events", e.run)
	return nil
}

func (e *Events) run(ctx context.Context) {
	tick := time.NewTicker(outboxReady)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-e.replies:
			_ = r.respond(r.data) // without NATS the source sends them again
			e.open.Add(-1)
		case <-tick.C:
			if e.share.Load() == nil && !e.draining.Load() && e.ready() == nil {
				e.join()
			}
		}
	}
}

func (e *Events) join() {
	leave, err := e.bus.Serve(bus.EventPublish, bus.Routers, eventRequests, e.Take)
	if err != nil {
		e.publisher.cfg.Telemetry.Log.Warn("events of stores are not taken here", "error", err)
		return
	}
	e.share.Store(&leave)
}

// Drain answers DRAINING from now on: sources ask another router.
func (e *Events) Drain() { e.draining.Store(true) }

// Stop ends the subscriptions and waits, until ctx ends, for the replies to what was taken.
func (e *Events) Stop(ctx context.Context) error {
	e.draining.Store(true)
	e.leave()
	if leave := e.share.Load(); leave != nil {
		(*leave)()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for e.open.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return e.group.Stop(ctx)
}

// Take publishes the events of one meshv1.EventPublish, and has respond called with a meshv1.ClientPublishReply.
func (e *Events) Take(data []byte, respond func([]byte) error) {
	var in meshv1.EventPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // the source sends it again
	}
	e.open.Add(1)
	g := gather(len(in.GetItems()), func(data []byte) {
		select {
		case e.replies <- reply{data, respond}:
		default:
			e.open.Add(-1)
		}
	}, func() { e.open.Add(-1) })
	for i, it := range in.GetItems() {
		key := it.GetDedupeKey()
		if key == "" {
			key = fmt.Sprintf("\x00event/%s/%d/%d", in.GetSource(), in.GetIncarnation(), it.GetNumber())
		}
		switch {
		case e.draining.Load():
			g.Published(uint64(i), refusal(errDraining()))
		case topic.Check(it.GetTopic()) != nil || !events.Own(it.GetTopic()):
			g.Published(uint64(i), refusal(code.New(wirev1.Code_CODE_FORBIDDEN, "not a topic of events")))
		default:
			e.publisher.tell(it.GetTopic(), it.GetEvent(), key, uint64(i), g)
		}
	}
}

// tell publishes an event: a message of the mesh's own. Nobody's limits hold it but a part of those of all together.
func (p *Publisher) tell(topic string, event []byte, key string, ref uint64, to Receiver) {
	now := time.Now()
	pol := p.cfg.Policies.Table().For(topic)
	ask := admission.Ask{Messages: 1, Bytes: weight(len(event))}
	if pol.Durable {
		ask.Topic = topic
	}
	slot, err := p.cfg.Admission.AdmitSpare(now, ask)
	if err != nil {
		to.Published(ref, refusal(err))
		return
	}
	l := &lone{}
	s := &l.sealed
	m := &Message{Request: &pushmeshv1.PublishRequest{DedupeKey: key}}
	s.publishedAt = uint64(now.UnixMicro())
	if err = p.name(m, s); err == nil {
		s.body, err = wire.Body(&wirev1.Message{Payload: event, PublishedAt: s.publishedAt, Id: s.id})
	}
	if err != nil {
		slot.Release()
		to.Published(ref, refusal(code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "event: "+err.Error())))
		return
	}
	p.submit(&l.job, now, m, s, topic, pol, slot, ref, to)
}
