package claims

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	ends     *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, watching func() int) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_claim_requests_total", Help: "Operations on claims by backends, by operation and code; for watch, the first answer.",
		}, []string{"op", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pushmesh_router_claim_seconds", Help: "Time from the arrival of an operation on claims to its answer.", Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 11),
		}, []string{"op"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_claim_watches_ended_total", Help: "Watches of claims that ended or were refused, by code.",
		}, []string{"code"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.ends, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_claim_watches", Help: "Open watches of claims.",
		}, func() float64 { return float64(watching()) }))
	}
	return m
}

func (m *metrics) done(kind meshv1.ClaimOp_Kind, err error, took time.Duration) {
	op := strings.ToLower(strings.TrimPrefix(kind.String(), "KIND_"))
	m.requests.WithLabelValues(op, code.Name(code.Of(err))).Inc()
	m.seconds.WithLabelValues(op).Observe(took.Seconds())
}

func (m *metrics) ended(err error) { m.ends.WithLabelValues(code.Name(code.Of(err))).Inc() }
