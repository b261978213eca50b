package dispatch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	told   prometheus.Counter
	untold *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		told: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_store_handed_messages_total", Help: "Messages appended by the store on its own and handed to a router.",
		}),
		untold: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_unhanded_messages_total", Help: "Messages appended by the store on its own that no router was told of; edges find them by comparing heads.",
		}, []string{"code"}),
	}
	if r != nil {
		r.MustRegister(m.told, m.untold)
	}
	return m
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
