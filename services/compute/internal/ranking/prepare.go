package ranking

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// maxWaiting jobs wait for a compilation or a model, of maxWaitingBytes together; more are
	// refused.
	maxWaiting      = 1024
	maxWaitingBytes = 256 << 20
	// mostWait for a model, and at most three quarters of the time that the job has: what is left
	// is for another node.
	mostWait = 5 * time.Second
	// compileSteps of a byte of an expression: 10 us. Usual ones take some, the worst ones 60.
	compileSteps = 400
)

// anteroom is where jobs wait that can't begin at once, outside the pool. It is safe for concurrent
// use.
type anteroom struct {
	mu          sync.Mutex
	jobs, bytes int
}

// enter refuses where it is full; leave ends the stay.
func (a *anteroom) enter(job *meshv1.RankJobRequest) (leave func(), err error) {
	size := proto.Size(job)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs == maxWaiting || a.jobs > 0 && a.bytes+size > maxWaitingBytes {
		return nil, code.Retry(wirev1.Code_CODE_OVERLOADED, 100*time.Millisecond, "too many jobs wait for a model or an expression to be ready")
	}
	a.jobs++
	a.bytes += size
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.jobs--
		a.bytes -= size
	}, nil
}

func (a *anteroom) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jobs
}

// compiled reports whether no expression of a request has to be compiled.
func (s *Service) compiled(r *pushmeshv1.RankRequest) bool {
	return (r.GetExpression() == nil || s.programs.Ready(r.GetExpression().GetExpression(), expr.Score)) &&
		(r.GetFilter() == "" || s.programs.Ready(r.GetFilter(), expr.Filter))
}

// atOnce makes a job ready that nothing has to be waited for; else ok is false.
func (s *Service) atOnce(job *meshv1.RankJobRequest, t *trial) (w *work, ok bool, err error) {
	if !s.compiled(job.GetRank()) {
		return nil, false, nil
	}
	w, err = newWork(job, t, s.parts)
	return w, code.Of(err) != wirev1.Code_CODE_UNAVAILABLE, err
}

// later makes a job ready, and waits for what it needs.
func (s *Service) later(ctx context.Context, job *meshv1.RankJobRequest, t *trial) (*work, error) {
	if err := s.compile(ctx, job); err != nil {
		return nil, err
	}
	w, err := newWork(job, t, s.parts)
	if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		return w, err
	}
	if err := s.await(ctx, job.GetRank().GetModel()); err != nil {
		return nil, err
	}
	return newWork(job, t, s.parts)
}

// await a model.
func (s *Service) await(ctx context.Context, m *pushmeshv1.ModelScorer) error {
	patience := mostWait
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)*3/4)
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.models.Wait(within, m.GetName(), m.GetVersion())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// compile has the expressions of a job compiled in the pool, as its caller's work.
func (s *Service) compile(ctx context.Context, job *meshv1.RankJobRequest) error {
	r := job.GetRank()
	for _, c := range []compilation{{s.programs, r.GetFilter(), expr.Filter}, {s.programs, r.GetExpression().GetExpression(), expr.Score}} {
		if c.text == "" || s.programs.Ready(c.text, c.kind) {
			continue
		}
		if _, err := s.pool.Do(ctx, job.GetCaller(), compileSteps*len(c.text), c); err != nil {
			return err
		}
	}
	return nil
}

// compilation is a cpupool.Task. What is wrong with the text is found where it is used.
type compilation struct {
	programs *expr.Cache
	text     string
	kind     expr.Kind
}

// Step implements cpupool.Task. It can't be cut.
func (c compilation) Step(time.Duration) (done bool, err error) {
	_, _ = c.programs.Compile(c.text, c.kind)
	return true, nil
}

var _ cpupool.Task = compilation{}
