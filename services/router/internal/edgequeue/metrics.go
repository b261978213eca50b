package edgequeue

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	batches     prometheus.Counter
	broadcasts  prometheus.Counter
	batchesLost *prometheus.CounterVec
	batchItems  prometheus.Histogram
	batchBytes  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, waiting func() float64) *metrics {
	m := &metrics{
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_batches_total", Help: "Numbered batches of deliveries that were sent to edges through NATS.",
		}),
		broadcasts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_broadcasts_total", Help: "Numbered batches that were sent once for all edges; counted in batches_total, too.",
		}),
		batchesLost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_batches_lost_total", Help: "Numbered batches that could not be sent, by code: QUEUE_FULL, UNAVAILABLE (NATS). Edges read the messages from the log.",
		}, []string{"code"}),
		batchItems: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_router_batch_items", Help: "Deliveries in one batch to edges.", Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		batchBytes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_router_batch_bytes", Help: "Size of one batch to edges, in bytes.", Buckets: prometheus.ExponentialBuckets(256, 4, 7),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.batches, m.broadcasts, m.batchesLost, m.batchItems, m.batchBytes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_edge_queue_bytes", Help: "Bytes that wait in all edge queues together.",
		}, waiting))
	}
	return m
}
