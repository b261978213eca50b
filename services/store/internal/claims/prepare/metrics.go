package prepare

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	total   *prometheus.CounterVec
	seconds prometheus.Histogram
	waiting prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	return &metrics{
		total: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_claims_prepared_total",
			Help: "Calls to the namespace's prepare URL before a grant, by code: OK; FORBIDDEN: it refused; ACK_TIMEOUT: it was late; UNAVAILABLE: not reached, or not allowed (--outbound-allow); INVALID_ARGUMENT: the URL is none; OVERLOADED: too many calls were queued; CANCELLED: the claim ended first.",
		}, []string{"code"}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_store_claims_prepare_seconds", Help: "Time that a call before a grant took.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 17),
		}),
		waiting: auto.NewGauge(prometheus.GaugeOpts{
			Name: "pushmesh_store_claims_prepare_queued", Help: "Calls before a grant that wait for others to end (claims.prepare.concurrency).",
		}),
	}
}

func (m *metrics) ended(c wirev1.Code) { m.total.WithLabelValues(code.Name(c)).Inc() }
