package caller

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

func newMetrics(c *Caller) *metrics {
	reg := c.cfg.Registry
	if reg == nil {
		return nil
	}
	prefix, flag := "pushmesh_"+c.cfg.Tier+"_"+c.cfg.Metric+"_", c.cfg.Flag
	m := &metrics{
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "asked_total", Help: c.cfg.Asked}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "seconds", Help: "How long the backend of " + flag + " took to answer, or to fail.", Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 3},
		}),
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, f)
	}
	reg.MustRegister(m.asked, m.took,
		gauge("under_way", "Questions to the backend of "+flag+" that are not answered yet.", func() float64 { return float64(len(c.room)) }),
		gauge("open", "1 while the backend of "+flag+" is not asked, since it failed; "+c.cfg.Refused+".", func() float64 {
			if c.breaker.State() == circuitbreaker.OpenState {
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
