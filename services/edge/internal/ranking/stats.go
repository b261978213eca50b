package ranking

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
)

// Where a ranking was scored.
const (
	here    = "edge"
	compute = "compute"
)

// stats of rankings.
type stats struct {
	done       *prometheus.CounterVec // by where
	fails      *prometheus.CounterVec // by code
	seconds    prometheus.Histogram
	candidates prometheus.Counter
}

func newStats(reg prometheus.Registerer, r *Ranker) *stats {
	s := &stats{
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_edge_rankings_total", Help: "Rankings of messages that were done in time, by where they were scored: edge or compute.",
		}, []string{"where"}),
		fails: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_edge_rankings_failed_total", Help: "Rankings that were not done, by code: their messages go out unranked.",
		}, []string{"code"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_edge_ranking_seconds", Help: "How long rankings took that were done.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		candidates: prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_edge_ranking_candidates_total", Help: "Candidates of the rankings that were done."}),
	}
	for _, where := range []string{here, compute} {
		s.done.WithLabelValues(where)
	}
	reg.MustRegister(s.done, s.fails, s.seconds, s.candidates, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_edge_rankings_in_flight", Help: "Rankings that are not answered, 4,096 at most.",
	}, func() float64 { return float64(r.underWay()) }))
	return s
}

func (s *stats) succeeded(where string, candidates int, took time.Duration) {
	s.done.WithLabelValues(where).Inc()
	s.seconds.Observe(took.Seconds())
	s.candidates.Add(float64(candidates))
}

func (s *stats) failed(err error) { s.fails.WithLabelValues(code.Name(code.Of(err))).Inc() }
