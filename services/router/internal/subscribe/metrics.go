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
		messages: counter("messages_total", "Messages sent to backends that subscribe."),
		acks:     counter("acks_total", "ACKs from backends, one for each entry, before they are combined."),
		stale:    counter("stale_acks_total", "ACKs and NACKs that were ignored, since they were for an edge that the stream no longer uses."),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_subscribe_unknown_frames_total", Help: "Frames from edges of a kind that this router does not know; they are ignored.", ConstLabels: prometheus.Labels{"code": code.Name(wirev1.Code_CODE_UNKNOWN_FRAME)},
		}),
		ends:     byCode("ended_total", "Subscribe streams that ended, by code."),
		refusals: byCode("refused_total", "Subscribe streams that were refused, by code: too many, or the router stops."),
		moves:    byCode("moves_total", "Times that a Subscribe stream moved to another edge, by the code that ended the connection to the one before."),
	}
	if reg != nil {
		reg.MustRegister(m.messages, m.acks, m.stale, m.unknown, m.ends, m.refusals, m.moves, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_subscribe_streams", Help: "Open Subscribe streams of backends.",
		}, func() float64 { return float64(streams()) }))
	}
	return m
}

func (m *metrics) ended(err error)   { m.ends.WithLabelValues(code.Name(code.Of(err))).Inc() }
func (m *metrics) refused(err error) { m.refusals.WithLabelValues(code.Name(code.Of(err))).Inc() }
func (m *metrics) moved(why error)   { m.moves.WithLabelValues(code.Name(code.Of(why))).Inc() }
