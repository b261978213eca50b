package server

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

var (
	connsDesc    = prometheus.NewDesc("pushmesh_store_postgres_connections", "Connections of the pool, by state: idle, used, connecting, and total of them.", []string{"state"}, nil)
	busyDesc     = prometheus.NewDesc("pushmesh_store_postgres_active_calls", "Calls that use a connection of the pool, by class.", []string{"class"}, nil)
	waitingDesc  = prometheus.NewDesc("pushmesh_store_postgres_queued_calls", "Calls that wait for a connection or for the adaptive limit, by class.", []string{"class"}, nil)
	waitsDesc    = prometheus.NewDesc("pushmesh_store_postgres_acquire_waits_total", "Calls that had to wait for a connection or for the adaptive limit.", nil, nil)
	waitedDesc   = prometheus.NewDesc("pushmesh_store_postgres_acquire_wait_seconds_total", "Time that calls waited for a connection or for the adaptive limit.", nil, nil)
	limitDesc    = prometheus.NewDesc("pushmesh_store_postgres_call_limit", "Calls that may run at the same time: the adaptive limit, lower after an outage.", nil, nil)
	breakerDesc  = prometheus.NewDesc("pushmesh_store_postgres_breaker", "1 for the state that the circuit breaker is in: closed, half_open or open.", []string{"state"}, nil)
	openedDesc   = prometheus.NewDesc("pushmesh_store_postgres_breaker_opened_total", "Times that the circuit breaker opened.", nil, nil)
	refusalsDesc = prometheus.NewDesc("pushmesh_store_postgres_refused_total", "Calls that were refused, by code: UNAVAILABLE, the circuit breaker is open; OVERLOADED, too many calls waited or waited too long.", []string{"code"}, nil)
)

// poolStats reads the pool and the gate at each scrape.
type poolStats struct {
	pool *pgxpool.Pool
	gate *dbgate.Gate
}

// AddMetrics registers collectors, where there is a registry.
func (s *Server) AddMetrics(all ...prometheus.Collector) error {
	if s.Config.Registry == nil {
		return nil
	}
	for _, c := range all {
		if err := s.Config.Registry.Register(c); err != nil {
			return fmt.Errorf("postgres: metrics: %w", err)
		}
	}
	return nil
}

// RemoveMetrics undoes AddMetrics.
func (s *Server) RemoveMetrics(all ...prometheus.Collector) {
	if s.Config.Registry == nil {
		return
	}
	for _, c := range all {
		s.Config.Registry.Unregister(c)
	}
}

// Describe makes poolStats a prometheus.Collector.
func (s poolStats) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connsDesc, busyDesc, waitingDesc, waitsDesc, waitedDesc, limitDesc, breakerDesc, openedDesc, refusalsDesc} {
		out <- d
	}
}

// Collect makes poolStats a prometheus.Collector.
func (s poolStats) Collect(out chan<- prometheus.Metric) {
	stat, status := s.pool.Stat(), s.gate.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(connsDesc, float64(stat.IdleConns()), "idle")
	gauge(connsDesc, float64(stat.AcquiredConns()), "used")
	gauge(connsDesc, float64(stat.ConstructingConns()), "connecting")
	gauge(connsDesc, float64(stat.TotalConns()), "total")
	for _, c := range dbgate.Classes() {
		gauge(busyDesc, float64(status.Busy[c]), c.String())
		gauge(waitingDesc, float64(status.Waiting[c]), c.String())
	}
	counter(waitsDesc, float64(uint64(stat.EmptyAcquireCount())+status.Waits))
	counter(waitedDesc, (stat.EmptyAcquireWaitTime() + status.Waited).Seconds())
	gauge(limitDesc, float64(status.Limit))
	for _, state := range []dbgate.State{dbgate.Closed, dbgate.HalfOpen, dbgate.Open} {
		is := 0.0
		if status.Breaker == state {
			is = 1
		}
		gauge(breakerDesc, is, state.String())
	}
	counter(openedDesc, float64(status.Opened))
	for _, c := range []wirev1.Code{wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_OVERLOADED} {
		counter(refusalsDesc, float64(status.Refused[c]), code.Name(c))
	}
}
