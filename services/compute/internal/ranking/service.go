// Package ranking serves meshv1.ComputeService on a pool.
package ranking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Service answers RankJob.
type Service struct {
	meshv1.UnimplementedComputeServiceServer
	// About fills in who this is; it is set before the first call.
	About    func(*meshv1.DescribeResponse)
	pool     *cpupool.Pool
	programs *expr.Cache
	models   Models
	parts    score.Parts
	rollouts *rollouts
	anteroom anteroom
	jobs     *prometheus.CounterVec
	wait     prometheus.Histogram
	run      prometheus.Histogram

	draining chan struct{} // closed by Drain
	drain    sync.Once
}

// expressions is how many programs are kept: usual ones take a few KiB, the largest 200.
const expressions = 512

// Models are those that a node has.
type Models interface {
	score.Models
	// Wait until Model has a version, or says why not for good; UNAVAILABLE: the store can't be
	// asked, or ctx has ended before it is loaded.
	Wait(ctx context.Context, name string, version uint64) error
}

// Config of a service.
type Config struct {
	Pool     *cpupool.Pool
	Models   Models
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// New makes a service and registers its metrics.
func New(cfg Config) *Service {
	p, reg := cfg.Pool, cfg.Registry
	programs := expr.NewCache(expressions, expr.Limits{})
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	s := &Service{
		draining: make(chan struct{}),
		pool:     p,
		programs: programs,
		models:   cfg.Models,
		parts:    score.Parts{Expressions: programs, Models: cfg.Models},
		rollouts: newRollouts(cfg.Log, reg),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_compute_jobs_total", Help: "Ranking jobs that ended, by code.",
		}, []string{"code"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_compute_wait_seconds", Help: "Time that jobs waited before they ran.", Buckets: buckets,
		}),
		run: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pushmesh_compute_run_seconds", Help: "CPU time that a job took in all.", Buckets: buckets,
		}),
	}
	reg.MustRegister(s.jobs, s.wait, s.run)
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_compute_expressions", Help: "Compiled expressions in the cache, 512 at most.",
	}, func() float64 { return float64(programs.Len()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_compute_preparing_jobs", Help: "Jobs that wait for an expression to be compiled or a model to be loaded, 1,024 at most.",
	}, func() float64 { return float64(s.anteroom.waiting()) }))
	for l := range cpupool.Lanes {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_compute_queue_depth", Help: "Jobs that wait to run.", ConstLabels: prometheus.Labels{"lane": l.String()},
		}, func() float64 { return float64(p.Depth(l)) }))
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_compute_queued_cost", Help: "Estimated cost of the jobs that wait or run, in steps.",
	}, func() float64 { return float64(p.Cost()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pushmesh_compute_stuck_workers", Help: "Workers that were replaced and whose job still runs.",
	}, func() float64 { now, _ := p.Lost(); return float64(now) }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pushmesh_compute_replaced_workers_total", Help: "Workers that were replaced because a step of their job took too long.",
	}, func() float64 { _, ever := p.Lost(); return float64(ever) }))
	return s
}

// Drain ends streams once what they have under way is answered.
func (s *Service) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Describe implements meshv1.ComputeServiceServer.
func (s *Service) Describe(context.Context, *meshv1.DescribeRequest) (*meshv1.DescribeResponse, error) {
	d := &meshv1.DescribeResponse{}
	if s.About != nil {
		s.About(d)
	}
	d.Clock = uint64(time.Now().UnixMicro())
	return d, nil
}

// RankJob implements meshv1.ComputeServiceServer.
func (s *Service) RankJob(ctx context.Context, req *meshv1.RankJobRequest) (*meshv1.RankJobResponse, error) {
	ctx, cancel := limited(ctx, req)
	defer cancel()
	w, times, err := s.rank(ctx, req)
	if e := s.ended(w, times, err); e != nil {
		return nil, e
	}
	return w.response(times), nil
}

func (s *Service) rank(ctx context.Context, req *meshv1.RankJobRequest) (w *work, times cpupool.Times, err error) {
	t := s.rollouts.choose(req.GetRank().GetNamespace(), req.GetRank().GetModel())
	w, ready, err := s.atOnce(req, t)
	if !ready {
		var leave func()
		if leave, err = s.anteroom.enter(req); err == nil {
			w, err = s.later(ctx, req, t)
			leave()
		}
	}
	if err != nil {
		return nil, times, err
	}
	err = w.admit(func() (err error) {
		times, err = s.pool.Do(ctx, req.GetCaller(), w.cost, w)
		return err
	})
	return w, times, err
}

// ended counts how a job ended, which is nil where it could not begin, and names an error.
func (s *Service) ended(w *work, times cpupool.Times, err error) *code.Error {
	if times.Waited > 0 {
		s.wait.Observe(times.Waited.Seconds())
	}
	if times.Ran > 0 {
		s.run.Observe(times.Ran.Seconds())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = code.New(wirev1.Code_CODE_EXPIRED, "the deadline came before the ranking was done")
	}
	switch {
	case w == nil:
	case err == nil:
		w.answered()
	case code.Of(err) == wirev1.Code_CODE_INTERNAL:
		w.lost(err)
	}
	e := code.From(err)
	s.jobs.WithLabelValues(code.Name(code.Of(err))).Inc()
	return e
}
