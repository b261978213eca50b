package outbox

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	batches    prometheus.Counter
	broadcasts prometheus.Counter
	holes      *prometheus.CounterVec
	batchItems prometheus.Histogram
	batchBytes prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, waiting func() float64) *metrics {
	m := &metrics{
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_batches_total", Help: "Numbered batches handed to NATS.",
		}),
		broadcasts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_broadcasts_total", Help: "Numbered batches handed to NATS once for all edges; they are in batches_total too.",
		}),
		holes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_batches_lost_total", Help: "Numbered batches that no edge will get, by reason.",
		}, []string{"code"}),
		batchItems: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_router_batch_items", Help: "Deliveries in a batch.", Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		batchBytes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_router_batch_bytes", Help: "Bytes of a batch.", Buckets: prometheus.ExponentialBuckets(256, 4, 7),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.batches, m.broadcasts, m.holes, m.batchItems, m.batchBytes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_edge_queue_bytes", Help: "Bytes that wait to be sent to edges.",
		}, waiting))
	}
	return m
}
