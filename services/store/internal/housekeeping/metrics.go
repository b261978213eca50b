package housekeeping

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ expired prometheus.Counter }

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{expired: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "pushmesh_store_sessions_expired_total", Help: "Sessions deleted, with their cursors and filters, because they were not attached for their TTL.",
	})}
	if r != nil {
		r.MustRegister(m.expired)
	}
	return m
}
