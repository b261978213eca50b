package publish

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
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
	// Repeated says that it may have been published already. The log tells, for durable topics; on
	// others it isn't published again.
	Repeated bool
}

// writtenWindow, in seconds, is how long the dedupe key of such a message is remembered: as long as
// any is, so that a store that comes back within a day publishes nothing twice.
const writtenWindow = 24 * 3600

// outboxRequests may wait to be taken in: the one store that reads the outbox has one under way.
const outboxRequests = 64

// Outbox takes what transactions wrote, from the store that reads the outbox, over NATS; routers
// take turns. It is a lifecycle.Part.
type Outbox struct{ requests }

// NewOutbox makes the part. It takes messages once ready says nil: a router that knows no edge yet
// would route to nobody.
func NewOutbox(p *Publisher, b *bus.Bus, ready func() error) *Outbox {
	o := &Outbox{requests{
		publisher: p, bus: b, name: "outbox", shared: bus.OutboxPublish, ready: ready, maxPending: outboxRequests, replies: make(chan reply, outboxRequests),
	}}
	o.handle = o.publish
	return o
}

func (o *Outbox) publish(data []byte, respond func([]byte) error) {
	var in meshv1.OutboxPublish
	if err := proto.Unmarshal(data, &in); err != nil || len(in.GetItems()) == 0 {
		return // the store asks again
	}
	g := o.beginReply(len(in.GetItems()), respond)
	now := uint64(o.publisher.cfg.Clock(time.Now()).UnixMicro())
	for i, it := range in.GetItems() {
		ref := uint64(i)
		switch {
		case o.draining.Load():
			g.Published(ref, refusal(errDraining()))
		case len(it.GetMessageId()) != 16:
			g.Published(ref, refusal(invalid("message_id has %d bytes, must be 16", len(it.GetMessageId()))))
		case it.GetTtlUs() > 0 && it.GetDeliverAt() == 0 && it.GetAt()+it.GetTtlUs() <= now:
			g.Published(ref, refusal(code.New(wirev1.Code_CODE_EXPIRED, "its ttl had ended before its transaction was read")))
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
