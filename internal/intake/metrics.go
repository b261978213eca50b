package intake

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// counts of what happens at the bound. Zero counters count nothing.
type counts struct{ refused, waits counter }

type counter struct{ prometheus.Counter }

// Inc counts one, where anybody counts.
func (c counter) Inc() {
	if c.Counter != nil {
		c.Counter.Inc()
	}
}

// Register adds the budget's metrics, under a tier's name. It must be called before any call.
func (b *Budget) Register(tier string, reg prometheus.Registerer) {
	prefix := "pushmesh_" + tier + "_"
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "requests_refused_total", Help: "Calls that were refused before their request was decoded, by code.",
	}, []string{"code"})
	waits := prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "request_waits_total", Help: "Times that a stream was not read for lack of memory for its next request.",
	})
	b.count.refused.Counter = refused.WithLabelValues(code.Name(wirev1.Code_CODE_OVERLOADED))
	b.count.waits.Counter = waits
	reg.MustRegister(refused, waits, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "request_bytes", Help: "About the memory that calls, requests in progress and unread answers take.",
	}, func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return float64(b.used)
	}))
}
