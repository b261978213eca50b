package models

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	loads   *prometheus.CounterVec
	evicted prometheus.Counter
}

func newMetrics(m *Models, reg prometheus.Registerer) *metrics {
	all := &metrics{
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_compute_model_loads_total", Help: "Attempts to read a model from the store and parse it, by code.",
		}, []string{"code"}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_compute_models_evicted_total", Help: "Models removed from memory to make room for others.",
		}),
	}
	gauge := func(name, help string, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return float64(value())
		}))
	}
	gauge("pushmesh_compute_models", "Versions of models in memory.", m.loaded.Len)
	gauge("pushmesh_compute_model_bytes", "Memory that the loaded models take.", m.loaded.Cost)
	reg.MustRegister(all.loads, all.evicted)
	return all
}
