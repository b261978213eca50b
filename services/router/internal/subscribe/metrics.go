package subscribe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	messages, acks, stale, unknown prometheus.Counter
	ends, refusals, moves          *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, streams func() int) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_router_subscribe_" + name, Help: help})
	}
	byCode := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pushmesh_router_subscribe_" + name, Help: help}, []string{"code"})
	}
	m := &metrics{
		messages: counter("messages_total", "Messages handed to backends."),
		acks:     counter("acks_total", "ACKs of backends, once for each entry, before they are gathered."),
		stale:    counter("stale_acks_total", "ACKs and NACKs passed over: they were about an edge that the stream has left."),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_subscribe_unknown_frames_total", Help: "Frames of edges that this router does not know, passed over.", ConstLabels: prometheus.Labels{"code": code.Name(wirev1.Code_CODE_UNKNOWN_FRAME)},
		}),
		ends:     byCode("ended_total", "Streams that ended, by code."),
		refusals: byCode("refused_total", "Streams refused because there are too many, or because the router stops, by code."),
		moves:    byCode("moves_total", "Streams that went on with another edge, by what ended the connection to the one before."),
	}
	if reg != nil {
		reg.MustRegister(m.messages, m.acks, m.stale, m.unknown, m.ends, m.refusals, m.moves, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_subscribe_streams", Help: "Streams of backends that consume.",
		}, func() float64 { return float64(streams()) }))
	}
	return m
}

func (m *metrics) ended(err error)   { m.ends.WithLabelValues(code.Name(code.Of(err))).Inc() }
func (m *metrics) refused(err error) { m.refusals.WithLabelValues(code.Name(code.Of(err))).Inc() }
func (m *metrics) moved(why error)   { m.moves.WithLabelValues(code.Name(code.Of(why))).Inc() }
