package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	connsDesc    = prometheus.NewDesc("pushmesh_store_postgres_connections", "Connections of the pool, by state.", []string{"state"}, nil)
	waitsDesc    = prometheus.NewDesc("pushmesh_store_postgres_acquire_waits_total", "Times that a call had to wait for a connection.", nil, nil)
	waitedDesc   = prometheus.NewDesc("pushmesh_store_postgres_acquire_wait_seconds_total", "Time that calls waited for a connection.", nil, nil)
	openDesc     = prometheus.NewDesc("pushmesh_store_postgres_away", "1 while calls are refused because Postgres does not answer.", nil, nil)
	refusalsDesc = prometheus.NewDesc("pushmesh_store_postgres_refused_total", "Calls refused because Postgres does not answer.", []string{"code"}, nil)
)

// poolStats reads the pool and the guard at each scrape.
type poolStats struct {
	pool  *pgxpool.Pool
	guard *guard
}

func (d *DB) register(registry prometheus.Registerer) error {
	if registry == nil {
		return nil
	}
	if err := registry.Register(poolStats{d.pool, d.guard}); err != nil {
		return fmt.Errorf("postgres: metrics: %w", err)
	}
	return nil
}

// Describe makes poolStats a prometheus.Collector.
func (s poolStats) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connsDesc, waitsDesc, waitedDesc, openDesc, refusalsDesc} {
		out <- d
	}
}

// Collect makes poolStats a prometheus.Collector.
func (s poolStats) Collect(out chan<- prometheus.Metric) {
	stat := s.pool.Stat()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(connsDesc, float64(stat.IdleConns()), "idle")
	gauge(connsDesc, float64(stat.AcquiredConns()), "used")
	counter(waitsDesc, float64(stat.EmptyAcquireCount()))
	counter(waitedDesc, stat.EmptyAcquireWaitTime().Seconds())
	away := 0.0
	if s.guard.open() {
		away = 1
	}
	gauge(openDesc, away)
	counter(refusalsDesc, float64(s.guard.refusals()), "UNAVAILABLE")
}
