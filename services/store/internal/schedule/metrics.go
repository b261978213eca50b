package schedule

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	late    prometheus.Histogram
	waiting prometheus.Gauge
	retries *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	return &metrics{
		late: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_store_scheduled_late_seconds", Help: "Time from when a scheduled message was due to its commit.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		waiting: auto.NewGauge(prometheus.GaugeOpts{
			Name: "pushmesh_store_scheduled_waiting_messages", Help: "Scheduled messages that are in memory, since they are due soon.",
		}),
		retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_scheduled_retries_total", Help: "Times that a scheduled message could not be appended when it was due, by code; it is tried again.",
		}, []string{"code"}),
	}
}
