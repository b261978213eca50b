package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	// total by code; the vector's lookup would cost more than the count.
	total        map[wirev1.Code]prometheus.Counter
	seconds      prometheus.Histogram
	noSubscriber prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_publishes_total", Help: "Publishes answered, by code; a message to several topics counts once for each.",
	}, []string{"code"})
	unrouted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_unrouted_total", Help: "Ephemeral messages that were sent to no edge, by code.",
	}, []string{"code"})
	m := &metrics{
		total: map[wirev1.Code]prometheus.Counter{},
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_router_publish_seconds", Help: "Time from a publish's arrival to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12),
		}),
		noSubscriber: unrouted.WithLabelValues(code.Name(wirev1.Code_CODE_NO_SUBSCRIBER)),
	}
	for number := range wirev1.Code_name {
		c := wirev1.Code(number)
		m.total[c] = total.WithLabelValues(code.Name(c))
	}
	if reg != nil {
		reg.MustRegister(total, unrouted, m.seconds)
	}
	return m
}

func (m *metrics) published(began time.Time, c wirev1.Code) {
	m.counter(c).Inc()
	m.seconds.Observe(time.Since(began).Seconds())
}

// refused counts messages that were refused together, before any work on them began: how long that
// took is not observed.
func (m *metrics) refused(c wirev1.Code, n int) { m.counter(c).Add(float64(n)) }

func (m *metrics) counter(c wirev1.Code) prometheus.Counter {
	if counter := m.total[c]; counter != nil {
		return counter
	}
	return m.total[wirev1.Code_CODE_INTERNAL]
}
