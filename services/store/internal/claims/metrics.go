package claims

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "pushmesh_store_claims_" + name, Help: help})
	}
	histogram := func(name, help string, least float64, buckets int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "pushmesh_store_claims_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 2, buckets)})
	}
	codes := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pushmesh_store_claims_" + name, Help: help}, []string{"code"})
	}
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_store_claims_" + name, Help: help})
	}
	m := &metrics{
		holding:  gauge("holding", "Holds of resources in this store's shards."),
		waiting:  gauge("waiting", "Owners that wait for resources in this store's shards."),
		waits:    histogram("wait_seconds", "From when an owner came to its grant.", 0.001, 24),
		lag:      histogram("expiry_lag_seconds", "From when the first hold of a commit expired to that commit.", 0.001, 16),
		ended:    codes("ended_total", "Places that ended, by code. OK: released, or left; EXPIRED; IDLE_TIMEOUT: nobody heard of the owner; ACK_TIMEOUT: granted and not taken up; UNAVAILABLE: not prepared."),
		refusals: codes("refused_total", "Operations that were refused, by code."),
		seconds:  histogram("commit_seconds", "How long a commit of claims took.", 0.0001, 16),
		ops:      histogram("batch_ops", "Operations that one commit answered.", 1, 11),
		failures: count("commit_failures_total", "Commits of claims that failed, or of which nobody knows."),
		reloads:  count("reloads_total", "Times that everything was read anew, after a failure or since another store took a shard."),
	}
	if r != nil {
		r.MustRegister(m.holding, m.waiting, m.waits, m.lag, m.ended, m.refusals, m.seconds, m.ops, m.failures, m.reloads)
	}
	return m
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
