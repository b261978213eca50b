package presencerooms

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	updates, snapshots prometheus.Counter
	refused            *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, r *Rooms) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_router_" + name, Help: help})
	}
	gauge := func(name, help string, of func(x *one) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushmesh_router_" + name, Help: help}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			n := 0
			for _, x := range r.byTopic {
				n += of(x)
			}
			return float64(n)
		})
	}
	m := &metrics{
		updates:   counter("rooms_updates_total", "Changes of who is in a topic that clients watch, gathered, each told to all edges that want it."),
		snapshots: counter("rooms_snapshots_total", "Times that an edge was told all members of such a topic."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_rooms_refused_total", Help: "Topics whose members edges were refused, by code.",
		}, []string{"code"}),
	}
	if reg != nil {
		reg.MustRegister(m.updates, m.snapshots, m.refused,
			gauge("rooms", "Topics whose members clients watch.", func(*one) int { return 1 }),
			gauge("rooms_users", "Users in these topics.", func(x *one) int { return x.core.Count() }))
	}
	return m
}
