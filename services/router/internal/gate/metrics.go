package gate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// soon is how far ahead a key's end is told.
const soon = 14 * 24 * time.Hour

func (g *Gate) register() {
	g.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_calls_refused_total", Help: "Calls and streams of backends that were refused or ended for who calls, by code.",
	}, []string{"code"})
	if g.cfg.Registry == nil {
		return
	}
	for _, c := range []wirev1.Code{wirev1.Code_CODE_UNAUTHENTICATED, wirev1.Code_CODE_FORBIDDEN, wirev1.Code_CODE_TOKEN_EXPIRED} {
		g.refused.WithLabelValues(code.Name(c))
	}
	g.cfg.Registry.MustRegister(g.refused)
	if g.cfg.Backends == nil {
		return
	}
	gauge := func(name, help string, of func(backends.Stats) int) {
		g.cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushmesh_router_" + name, Help: help}, func() float64 {
			return float64(of(g.cfg.Backends.Stats(soon)))
		}))
	}
	gauge("backends", "Identities in the backends file.", func(s backends.Stats) int { return s.Backends })
	gauge("backend_keys", "API keys in the backends file.", func(s backends.Stats) int { return s.Keys })
	gauge("backend_keys_ending", "API keys that end within 14 days.", func(s backends.Stats) int { return s.Ending })
	reads := func(result string, of func(backends.Stats) uint64) {
		g.cfg.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "pushmesh_router_backends_reloads_total", Help: "Changes of the backends file: taken, or failed (the old one stays).",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(of(g.cfg.Backends.Stats(soon))) }))
	}
	reads("taken", func(s backends.Stats) uint64 { return s.Taken })
	reads("failed", func(s backends.Stats) uint64 { return s.Failed })
}
