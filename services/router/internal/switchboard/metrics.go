package switchboard

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	routed, stored, checks, snapshotsRequested, badMessages prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Switchboard) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_router_" + name, Help: help})
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushmesh_router_" + name, Help: help}, read)
	}
	m := &metrics{
		routed:             counter("deliveries_total", "Messages queued for edges; a message for three edges counts three times."),
		stored:             counter("store_notified_messages_total", "Messages that a store appended on its own, such as scheduled ones, and that this router sent to edges."),
		checks:             counter("head_checks_total", "Times that an edge was asked to compare a topic's head with the store."),
		snapshotsRequested: counter("interest_snapshots_requested_total", "Times that an edge was asked for all its filters."),
		badMessages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_bad_messages_total", Help: "Messages from edges and stores that could not be decoded.", ConstLabels: prometheus.Labels{"code": code.Name(wirev1.Code_CODE_BAD_FRAME)},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.routed, m.stored, m.checks, m.snapshotsRequested, m.badMessages,
			gauge("broadcast_topics", "Topics whose messages are sent once for all edges, since most edges want them.", func() float64 { return float64(s.ways.len()) }),
			gauge("edges", "Edges that this router knows.", func() float64 { return float64(s.stats().Edges) }),
			gauge("interest_entries", "Topics and filters with subscribers, summed over edges.", func() float64 { return float64(s.stats().Entries) }),
			gauge("edge_connections", "Client connections, as edges report them.", func() float64 { return float64(s.stats().Connections) }))
	}
	return m
}
