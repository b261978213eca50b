package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	told   prometheus.Counter
	untold *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	return &metrics{
		told: auto.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_notified_messages_total", Help: "Messages that the store appended on its own, such as scheduled ones, and sent to a router to be delivered.",
		}),
		untold: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_unnotified_messages_total", Help: "Messages that the store appended on its own and could not send to a router, by code; edges find them later by comparing heads.",
		}, []string{"code"}),
	}
}

// bounded counts a message that could not be queued.
func (m *metrics) bounded(c wirev1.Code) {
	if c != wirev1.Code_CODE_OK {
		m.untold.WithLabelValues(code.Name(c)).Inc()
	}
}

func (m *metrics) lost(messages int) {
	m.untold.WithLabelValues(code.Name(wirev1.Code_CODE_UNAVAILABLE)).Add(float64(messages))
}
