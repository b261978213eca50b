package claimclient

import "github.com/prometheus/client_golang/prometheus"

// metrics may be nil: then nothing is counted.
type metrics struct {
	late prometheus.Counter
}

func newMetrics(c *Client) *metrics {
	if c.cfg.Registry == nil {
		return nil
	}
	prefix := "pushmesh_" + c.cfg.Tier + "_claim_"
	m := &metrics{late: prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "missed_pushes_total", Help: "Changes of claims whose push from the store did not arrive; they were found by asking again.",
	})}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, value)
	}
	c.cfg.Registry.MustRegister(m.late,
		gauge("in_flight", "Operations on claims that no store has answered yet.", func() float64 { return float64(c.underWay.Load()) }),
		gauge("followed", "Claims and resources whose changes are pushed to connections.", func() float64 { return float64(c.ties.Load()) }),
		gauge("streams", "Open streams to stores that carry operations on claims.", func() float64 {
			n := 0
			for _, l := range c.allLinks() {
				if l.isOpen() {
					n++
				}
			}
			return float64(n)
		}),
	)
	return m
}

func (m *metrics) found() {
	if m != nil {
		m.late.Inc()
	}
}
