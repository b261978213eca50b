package upstream

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// owingEvery is how often loops are offered again what they have no room for.
const owingEvery = 5 * time.Millisecond

// framesAtATime are taken before what they brought is handed on: a loop is woken once for all that
// is at hand.
const framesAtATime = 16

// decoder is what receive uses again and again.
type decoder struct {
	frame routerlink.Frame
	parts []history.Parts
	msgs  []*exchange.Message
	names topicNames
}

// receive takes a frame and those that wait behind it, up to a bound.
func (m *Mesh) receive(msg *bus.Message) {
	for n := 1; ; n++ {
		if m.inbox.Keep(msg) {
			m.frame(msg.Data)
		} else {
			m.stats.ShedFrames.Add(1)
		}
		if n == framesAtATime {
			return
		}
		select {
		case msg = <-m.inbox.C():
		default:
			return
		}
	}
}

// frame handles one frame of a router.
func (m *Mesh) frame(data []byte) {
	f := &m.decoder.frame
	if !f.Decode(data) {
		m.stats.BadFrames.Add(1)
		m.cfg.Log.Warn("frame of a router can't be read")
		return
	}
	if f.Broadcast > 0 {
		m.broadcast(f)
		return
	}
	known := m.routers.Len()
	v := m.routers.Take(m.now, f, m.table.Version())
	if v.Foreign {
		m.stats.ForeignFrames.Add(1)
		return
	}
	m.stats.Frames.Add(1)
	if v.Repeated {
		m.stats.RepeatedFrames.Add(1)
	} else {
		m.deliver(f)
	}
	m.missed(f, v.Missed)
	m.checkSome("router", f.CheckTopics)
	if f.WantSnapshot {
		m.snapshot(string(f.Router))
	}
	if m.routers.Len() != known || f.Leaving || v.Missed == routerlink.Incarnation {
		m.routersChanged()
	}
	if v.Applied {
		m.passJoins()
	}
	m.wantEvents()
}

// broadcast handles a frame that every edge gets.
func (m *Mesh) broadcast(f *routerlink.Frame) {
	v := m.routers.Broadcast(m.now, f)
	switch {
	case v.Foreign:
		m.stats.ForeignFrames.Add(1)
		return
	case v.Repeated:
		m.stats.RepeatedFrames.Add(1)
		return
	}
	m.stats.Broadcasts.Add(1)
	m.deliver(f)
	m.missed(f, v.Missed)
}

// deliver encodes what the frame brings, for all subscribers of the edge, and has the feed put it
// in order, after it was judged where there are content filters. Of a broadcast what nobody wants
// here is let go before it costs anything.
func (m *Mesh) deliver(f *routerlink.Frame) {
	d := &m.decoder
	d.parts, d.msgs = d.parts[:0], d.msgs[:0]
	for i := range f.Deliveries {
		in := &f.Deliveries[i]
		if f.Broadcast > 0 && !m.feed.Takes(in.Topic) {
			continue
		}
		d.parts = append(d.parts, history.Parts{
			Topic: d.names.of(in.Topic), Epoch: in.Epoch, Seq: in.Seq, ExpiresAt: in.ExpiresAt, Body: in.Body,
		})
	}
	d.msgs = history.Encode(d.msgs, d.parts, m.cfg.Traced)
	m.stats.BadFrames.Add(uint64(len(d.parts) - len(d.msgs)))
	for msgs := d.msgs; len(msgs) > 0; {
		n := 1
		for n < len(msgs) && msgs[n].Topic == msgs[0].Topic {
			n++
		}
		m.take(msgs[:n])
		msgs = msgs[n:]
	}
	m.stats.Deliveries.Add(uint64(len(d.msgs)))
	clear(d.parts) // bodies lie in the frame
	clear(d.msgs)
}

func (m *Mesh) missed(f *routerlink.Frame, why routerlink.Reason) {
	if why == "" {
		return
	}
	m.cfg.Log.Info("deliveries may have been missed", "router", string(f.Router), "reason", string(why))
	m.checkAll(string(why))
}

func (m *Mesh) routersChanged() {
	m.routers.publish()
	m.passJoins()
	m.wantEvents()
}

// gap is called after NATS was connected, or dropped something.
func (m *Mesh) gap() {
	m.routers.connected(m.now)
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
			if len(run) > 0 && !m.loops.live(loop, run) {
				m.stats.RefusedRuns.Add(1)
				m.stats.Overloaded.Add(uint64(m.feed.Refused(loop, run)))
			}
		}
		for _, s := range spans {
			s.End()
		}
		for _, r := range out.Reads {
			m.reads.repair(r, func(answer exchange.Range) {
				m.judging.judgeRange(answer, func(answer exchange.Range) { m.feed.ReadDone(m.now, r, answer) })
			})
		}
	}
	if m.feed.Owing() && !m.now.Before(m.owingAt) && !m.feed.Resend(m.loops.live) {
		m.owingAt = m.now.Add(owingEvery)
	}
}

func (m *Mesh) owingDue() (time.Time, bool) { return m.owingAt, m.feed.Owing() }

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
