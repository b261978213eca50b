package token

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
)

// metrics may be nil: then nothing is counted.
type metrics struct {
	verified *prometheus.CounterVec
	cached   prometheus.Counter // of verified
	fetches  *prometheus.CounterVec
	v        *Verifier
	age      *prometheus.Desc
}

// results of tokens beside the names of codes, and of fetches.
const (
	resultOK     = "ok"
	resultCached = "cached"
	resultFailed = "failed"
)

func newMetrics(v *Verifier, o *Options) *metrics {
	if o.Registry == nil {
		return nil
	}
	prefix := "pushmesh_" + o.Tier + "_"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	m := &metrics{
		v: v,
		verified: counter("tokens_verified_total", "Tokens that were shown, by what came of it: ok, cached (ok, and was verified before), "+
			"or the code of the refusal.", "result"),
		fetches: counter("issuer_fetches_total", "Fetches of the keys of an issuer of tokens, by what came of it: ok or failed.", "issuer", "result"),
		age: prometheus.NewDesc(prefix+"issuer_keys_age_seconds",
			"Since the fetch began that gave the keys of an issuer of tokens; absent until one has.", []string{"issuer"}, nil),
	}
	m.cached = m.verified.WithLabelValues(resultCached)
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "token_checks_waiting", Help: "Checks of tokens that wait for their turn."},
		func() float64 { return float64(v.waiting.Load()) })
	o.Registry.MustRegister(m.verified, m.fetches, waiting, m)
	return m
}

// Describe and Collect tell the ages of the keys.
func (m *metrics) Describe(to chan<- *prometheus.Desc) { to <- m.age }

func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, r := range *m.v.issuers.Load() {
		if have := r.current.Load(); have != nil {
			to <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, time.Since(have.began).Seconds(), r.issuer.Name)
		}
	}
}

func (m *metrics) shown(result string) {
	if m != nil {
		m.verified.WithLabelValues(result).Inc()
	}
}

// wasKnown takes no lock.
func (m *metrics) wasKnown() {
	if m != nil {
		m.cached.Inc()
	}
}

func (m *metrics) refused(why *code.Error) { m.shown(strings.ToLower(code.Name(why.Code))) }

func (m *metrics) fetched(issuer string, err error) {
	switch {
	case m == nil:
	case err == nil:
		m.fetches.WithLabelValues(issuer, resultOK).Inc()
	default:
		m.fetches.WithLabelValues(issuer, resultFailed).Inc()
	}
}
