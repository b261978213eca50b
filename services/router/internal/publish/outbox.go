package publish

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Written is what is known of a message that an application's transaction wrote into the outbox.
type Written struct {
	// MessageID that the transaction was told.
	MessageID []byte
	// KeySince is when it was written, Unix microseconds.
	KeySince uint64
	// Repeated says that it may have been published already. The log tells, for durable topics; on others it isn't published again.
	Repeated bool
}

// writtenWindow, in seconds, is how long the dedupe key of such a message is remembered: as long as any is, so that a store that comes back
// within a day publishes nothing twice.
const writtenWindow = 24 * 3600

const (
	// outboxRequests may wait to be taken in: the one store that reads the outbox has one under way.
	outboxRequests = 64
	// outboxReady is how often it is looked whether this router can be trusted with messages.
	outboxReady = 50 * time.Millisecond
)

// Outbox takes what transactions wrote, from the store that reads the outbox, over NATS; routers take turns. It is a lifecycle.Part.
type Outbox struct {
	publisher *Publisher
	bus       *bus.Bus
	ready     func() error
	group     *lifecycle.Group
	replies   chan reply
	leave     atomic.Pointer[func()]
	open      atomic.Int64 // requests without a reply
	draining  atomic.Bool
}

// NewOutbox makes the part. It takes messages once ready says nil: a router that knows no edge yet would route to nobody.
func NewOutbox(p *Publisher, b *bus.Bus, ready func() error) *Outbox {
	return &Outbox{publisher: p, bus: b, ready: ready, replies: make(chan reply, outboxRequests)}
}

// Start waits, in a goroutine, until the router is ready, and subscribes.
func (o *Outbox) Start(context.Context) error {
	o.group = lifecycle.NewGroup(context.Background())
	o.group.Go("outbox", o.run)
	return nil
}

func (o *Outbox) run(ctx context.Context) {
	tick := time.NewTicker(outboxReady)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-o.replies:
			_ = r.respond(r.data) // without NATS the store asks another router
			o.open.Add(-1)
		case <-tick.C:
			if o.leave.Load() == nil && !o.draining.Load() && o.ready() == nil {
				o.join()
			}
		}
	}
}

func (o *Outbox) join() {
	leave, err := o.bus.Serve(bus.OutboxPublish, bus.Routers, outboxRequests, o.take)
	if err != nil {
		o.publisher.cfg.Telemetry.Log.Warn("the outbox is not served here", "error", err)
		return
	}
	o.leave.Store(&leave)
}

// Drain answers DRAINING from now on: the store asks another router.
func (o *Outbox) Drain() { o.draining.Store(true) }

// Stop ends the subscription and waits, until ctx ends, for the replies to what was taken.
func (o *Outbox) Stop(ctx context.Context) error {
	o.draining.Store(true)
	if leave := o.leave.Load(); leave != nil {
		(*leave)()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for o.open.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return o.group.Stop(ctx)
}

func (o *Outbox) take(data []byte, respond func([]byte) error) {
	var in meshv1.OutboxPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // the store asks again
	}
	o.open.Add(1)
	g := gather(len(in.GetItems()), func(data []byte) {
		select {
		case o.replies <- reply{data, respond}:
		default:
			o.open.Add(-1)
		}
	}, func() { o.open.Add(-1) })
	now := uint64(time.Now().UnixMicro())
	for i, it := range in.GetItems() {
		ref := uint64(i)
		switch {
		case o.draining.Load():
			g.Published(ref, refusal(errDraining()))
		case len(it.GetMessageId()) != 16:
			g.Published(ref, refusal(invalid("message_id has %d bytes, must be 16", len(it.GetMessageId()))))
		case it.GetTtlUs() > 0 && it.GetDeliverAt() == 0 && it.GetAt()+it.GetTtlUs() <= now:
			g.Published(ref, refusal(code.New(wirev1.Code_CODE_EXPIRED, "its ttl was over before its transaction was seen")))
		default:
			m := written(it, in.GetProducerId(), now)
			m.Ref, m.To = ref, g
			o.publisher.Publish(m)
		}
	}
}

func written(it *meshv1.OutboxPublish_Item, producer []byte, now uint64) *Message {
	m := &Message{
		Context: context.Background(), Producer: "outbox",
		Written: &Written{MessageID: it.GetMessageId(), KeySince: it.GetAt(), Repeated: it.GetRepeated()},
		Request: &pushmeshv1.PublishRequest{
			Topic: it.GetTopic(), Payload: it.GetPayload(), Headers: it.GetHeaders(), DedupeKey: it.GetDedupeKey(),
			Priority: it.GetPriority(), Traceparent: it.GetTraceparent(),
		},
	}
	if seq := it.GetProducerSeq(); seq > 0 {
		m.ProducerID, m.ProducerSeq = producer, seq
	}
	ttl := time.Duration(it.GetTtlUs()) * time.Microsecond
	if due := it.GetDeliverAt(); due > 0 {
		m.Request.DeliverAt = timestamppb.New(time.UnixMicro(int64(due)))
	} else if ttl > 0 {
		ttl -= time.Duration(now-min(now, it.GetAt())) * time.Microsecond
	}
	if ttl > 0 {
		m.Request.Ttl = durationpb.New(ttl)
	}
	return m
}
