package switchboard

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	routed, stored, checks, wanted, bad prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Switchboard) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_router_" + name, Help: help})
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushmesh_router_" + name, Help: help}, read)
	}
	m := &metrics{
		routed: counter("deliveries_total", "Messages queued for an edge, once for each."),
		stored: counter("stored_messages_total", "Messages routed that a store appended on its own."),
		checks: counter("check_topics_total", "Edges told to compare a topic's head with the store."),
		wanted: counter("snapshots_wanted_total", "Times an edge's whole interest was asked for."),
		bad: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_bad_messages_total", Help: "Messages from edges and stores that could not be decoded.", ConstLabels: prometheus.Labels{"code": code.Name(wirev1.Code_CODE_BAD_FRAME)},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.routed, m.stored, m.checks, m.wanted, m.bad,
			gauge("broadcast_topics", "Topics whose messages go out once for all edges.", func() float64 { return float64(s.ways.len()) }),
			gauge("edges", "Edges in the table.", func() float64 { return float64(s.stats().Edges) }),
			gauge("interest_entries", "Topics and filters wanted, summed over edges.", func() float64 { return float64(s.stats().Entries) }),
			gauge("edge_connections", "Connections that the edges say they hold.", func() float64 { return float64(s.stats().Connections) }))
	}
	return m
}
