package postgres

import (
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	failuresToOpen   = 5
	successesToClose = 2
	// probeEvery is the least time between two questions to a database that is away.
	probeEvery = 200 * time.Millisecond
	// retryAfter is what callers are told meanwhile.
	retryAfter = 500 * time.Millisecond
)

// guard refuses at once while the database is away: after failuresToOpen failures in a row only single probes get through,
// probeEvery apart, until successesToClose of them have succeeded. It is safe for concurrent use.
type guard struct {
	breaker circuitbreaker.CircuitBreaker[any]
	now     func() time.Time

	mu      sync.Mutex
	probing bool
	probed  time.Time // when the last probe began
	refused uint64
}

// outcome of what the guard let through.
type outcome int

const (
	answered  outcome = iota // by the database, whatever it said
	silent                   // no connection, no answer in time
	abandoned                // by the caller: says nothing about the database
)

func newGuard(now func() time.Time) *guard {
	return &guard{
		now: now,
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureThreshold(failuresToOpen).WithSuccessThreshold(successesToClose).WithDelay(probeEvery).Build(),
	}
}

// enter asks for leave to use the database. leave must be called once with what came of it.
func (g *guard) enter() (leave func(outcome), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.IsClosed() {
		return g.record, nil
	}
	now := g.now()
	if g.probing || now.Sub(g.probed) < probeEvery || !g.breaker.TryAcquirePermit() {
		g.refused++
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "postgres is away")
	}
	g.probing, g.probed = true, now
	return func(o outcome) {
		g.mu.Lock()
		g.probing = false
		g.mu.Unlock()
		if o == abandoned {
			o = silent // a probe must not pass by being given up
		}
		g.record(o)
	}, nil
}

func (g *guard) record(o outcome) {
	switch o {
	case answered:
		g.breaker.RecordSuccess()
	case silent:
		g.breaker.RecordFailure()
	case abandoned:
	}
}

// open says whether calls are refused now.
func (g *guard) open() bool { return !g.breaker.IsClosed() }

func (g *guard) refusals() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}
