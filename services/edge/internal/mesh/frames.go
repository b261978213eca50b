package mesh

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"

	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/history"
)

// owingEvery is how often a loop is offered again what it had no room for.
const owingEvery = 5 * time.Millisecond

// batch is a router's frame with its deliveries encoded for subscribers.
type batch struct {
	frame    *meshv1.RouterFrame
	messages []*exchange.Message
}

// receive runs in the goroutine of the NATS subscription: encoding is done here, beside the mesh's goroutine. Where that can't
// follow, this blocks, NATS drops, and heads are compared.
func (m *Mesh) receive(data []byte, _ func([]byte) error) {
	frame := &meshv1.RouterFrame{}
	if err := proto.Unmarshal(data, frame); err != nil {
		m.stats.BadFrames.Add(1)
		m.cfg.Log.Warn("frame of a router can't be read", "error", err)
		return
	}
	b := batch{frame: frame, messages: make([]*exchange.Message, 0, len(frame.GetDeliveries()))}
	if frame.GetEdgeIncarnation() == m.cfg.Incarnation {
		parts := make([]history.Parts, 0, len(frame.GetDeliveries()))
		for _, d := range frame.GetDeliveries() {
			parts = append(parts, history.Parts{Topic: d.GetTopic(), Epoch: d.GetEpoch(), Seq: d.GetSeq(), ExpiresAt: d.GetExpiresAt(), Body: d.GetBody()})
		}
		b.messages = history.Encode(b.messages, parts, m.cfg.Traced)
	}
	select {
	case m.frames <- b:
	case <-m.group.Context().Done():
	}
}

// take handles a frame in the mesh's goroutine.
func (m *Mesh) take(b batch) {
	known := m.routers.Len()
	v := m.routers.Take(m.now, b.frame, m.table.Version())
	if v.Foreign {
		m.stats.ForeignFrames.Add(1)
		return
	}
	m.stats.Frames.Add(1)
	for _, msg := range b.messages {
		m.feed.Deliver(m.now, msg)
	}
	m.stats.Deliveries.Add(uint64(len(b.messages)))
	if v.Missed != "" {
		m.cfg.Log.Info("deliveries may have been missed", "router", b.frame.GetRouterId(), "reason", string(v.Missed))
		m.checkAll(string(v.Missed))
	}
	m.checkSome("router", b.frame.GetCheckTopics())
	if b.frame.GetWantSnapshot() {
		m.snapshot(b.frame.GetRouterId())
	}
	if m.routers.Len() != known || b.frame.GetLeaving() {
		m.routersChanged()
	}
	if v.Applied {
		m.openGate()
	}
}

func (m *Mesh) routersChanged() {
	ids := m.routers.IDs()
	m.routerID.Store(&ids)
	m.openGate()
}

// gap is called after NATS was connected, or dropped something.
func (m *Mesh) gap() {
	m.stats.Gaps.Add(1)
	m.connected()
	m.announce()
	m.digest()
	m.routers.Doubt(m.table.Version())
	m.checkAll("gap")
}

// handOn posts the feed's runs and begins its reads.
func (m *Mesh) handOn() {
	out, ok := m.feed.Take()
	if ok {
		spans := m.begin(out.Sampled)
		for loop, run := range out.Loops {
			if len(run) > 0 && !m.loops[loop].live(run) {
				m.stats.RefusedRuns.Add(1)
				m.stats.Overloaded.Add(uint64(m.feed.Refused(loop, run)))
			}
		}
		for _, s := range spans {
			s.End()
		}
		for _, r := range out.Reads {
			k := history.Key{Topic: r.Topic, Epoch: r.Epoch, From: r.From, To: r.To, MaxBytes: repairBytes}
			m.repairs.Read(k, func(answer exchange.Range) {
				m.ops.Do(func() { m.feed.ReadDone(m.now, r, answer) })
			})
		}
	}
	if m.feed.Owing() {
		m.feed.Resend(func(loop int, run []*exchange.Message) bool { return m.loops[loop].live(run) })
	}
}

// repairBytes bounds one read of the feed's own.
const repairBytes = 256 << 10

func (m *Mesh) owingDue() (time.Time, bool) { return m.now.Add(owingEvery), m.feed.Owing() }

// begin makes a span for every sampled message that is handed to loops.
func (m *Mesh) begin(sampled []*exchange.Message) []trace.Span {
	spans := make([]trace.Span, 0, len(sampled))
	for _, msg := range sampled {
		ctx := telemetry.WithTraceparent(context.Background(), msg.Traceparent)
		_, span := m.cfg.Tracer.Start(ctx, "pushmesh.edge.deliver", trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.String("messaging.destination.name", msg.Topic),
				attribute.Int64("pushmesh.seq", int64(msg.Seq)),
			))
		spans = append(spans, span)
	}
	return spans
}
