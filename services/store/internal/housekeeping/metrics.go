package housekeeping

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ expired, detached prometheus.Counter }

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	return &metrics{
		expired: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_sessions_expired_total", Help: "Sessions deleted, with their cursors and filters, because they were not attached for their TTL.",
		}),
		detached: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_sessions_detached_total", Help: "Sessions whose TTL begins because the edge that held them was not heard of for a minute.",
		}),
	}
}
