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
		Name: prefix + "late_total", Help: "States of claims that were found by asking again, since the store's push did not come.",
	})}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, value)
	}
	c.cfg.Registry.MustRegister(m.late,
		gauge("under_way", "Operations on claims without an answer so far.", func() float64 { return float64(c.underWay.Load()) }),
		gauge("told", "Places and resources of claims that connections are told about.", func() float64 { return float64(c.ties.Load()) }),
		gauge("streams", "Streams for claims to stores.", func() float64 {
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
