package hook

import (
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/prometheus/client_golang/prometheus"
)

// results of questions beside the names of codes.
const (
	resultOK     = "ok"
	resultCached = "cached"
)

// metrics may be nil: then nothing is counted.
type metrics struct {
	asked *prometheus.CounterVec
	took  prometheus.Histogram
}

func newMetrics(h *Hook, tier string, reg prometheus.Registerer) *metrics {
	if reg == nil {
		return nil
	}
	prefix := "pushmesh_" + tier + "_connect_hook_"
	m := &metrics{
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "asked_total", Help: "Clients that the backend of --connect-hook was asked about, by what came of it: ok, cached (an answer from before), or the code of the refusal.",
		}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "seconds", Help: "How long the backend of --connect-hook took to answer, or to fail.", Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 3},
		}),
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, f)
	}
	reg.MustRegister(m.asked, m.took,
		gauge("under_way", "Questions to the backend of --connect-hook that are not answered yet.", func() float64 { return float64(len(h.room)) }),
		gauge("open", "1 while the backend of --connect-hook is not asked, since it failed; clients are refused with UNAVAILABLE.", func() float64 {
			if h.breaker.State() == circuitbreaker.OpenState {
				return 1
			}
			return 0
		}))
	return m
}

// done counts a question; took is 0 where the backend was not asked.
func (m *metrics) done(result string, took time.Duration) {
	if m == nil {
		return
	}
	m.asked.WithLabelValues(result).Inc()
	if took > 0 {
		m.took.Observe(took.Seconds())
	}
}
