package claims

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book"
)

type metrics struct {
	holding, waiting prometheus.Gauge
	waits, lag       prometheus.Histogram
	ended, refusals  *prometheus.CounterVec
	seconds, ops     prometheus.Histogram
	failures         prometheus.Counter
	reloads          prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: "pushmesh_store_claims_" + name, Help: help})
	}
	histogram := func(name, help string, least float64, buckets int) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: "pushmesh_store_claims_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 2, buckets)})
	}
	codes := func(name, help string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: "pushmesh_store_claims_" + name, Help: help}, []string{"code"})
	}
	count := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "pushmesh_store_claims_" + name, Help: help})
	}
	return &metrics{
		holding:  gauge("holds", "Claims that hold a resource, in the shards of this store."),
		waiting:  gauge("queued", "Claims that wait for a resource, in the shards of this store."),
		waits:    histogram("wait_seconds", "Time from a claim's arrival to its grant.", 0.001, 24),
		lag:      histogram("expiry_lag_seconds", "Time from the expiry of a hold to the commit that ends it; of several in one commit, the first.", 0.001, 16),
		ended:    codes("ended_total", "Claims that ended, by code. OK: released, or the owner left the line; EXPIRED: not renewed; IDLE_TIMEOUT: the owner was not heard of; ACK_TIMEOUT: granted and not accepted in time; UNAVAILABLE: the call before the grant failed."),
		refusals: codes("refused_total", "Operations on claims that were refused, by code."),
		seconds:  histogram("commit_seconds", "Time that a commit of claims took.", 0.0001, 16),
		ops:      histogram("batch_ops", "Operations on claims that one commit answered.", 1, 11),
		failures: count("commit_failures_total", "Commits of claims that failed, or whose outcome is unknown."),
		reloads:  count("reloads_total", "Times that all claims were read again from the database, after a failure or after another store took a shard."),
	}
}

func (m *metrics) state(s book.Stats) {
	m.holding.Set(float64(s.Holders))
	m.waiting.Set(float64(s.Waiting))
}

func (m *metrics) refused(c wirev1.Code, n int) {
	m.refusals.WithLabelValues(code.Name(c)).Add(float64(n))
}

// committed counts what a step says.
func (m *metrics) committed(s *book.Step, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	if n := len(s.Answers); n > 0 {
		m.ops.Observe(float64(n))
	}
	for _, w := range s.Counts.Waits {
		m.waits.Observe(w)
	}
	for c, n := range s.Counts.Ended {
		m.ended.WithLabelValues(code.Name(c)).Add(float64(n))
	}
	for c, n := range s.Counts.Refused {
		m.refused(c, n)
	}
}
