// Package admission refuses, early and with a time to come back, what a producer sends beyond its share. It never makes anybody wait.
package admission

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Limits of one producer, or of all together.
type Limits struct {
	// Rate in messages a second, InFlight in messages unanswered; 0: none.
	Rate, InFlight int
}

// Config of Admission. Limits are the mesh's: each live router enforces its share.
type Config struct {
	// Producer holds for each producer, unless a namespace's policy says otherwise.
	Producer Limits
	// Overall holds for all producers together.
	Overall  Limits
	Registry prometheus.Registerer
}

const (
	stripes = 32
	// maxProducers is how many producers each stripe remembers; newer ones beyond share one budget.
	maxProducers = 2048
	// idleAfter is when a producer without traffic is forgotten: its bucket is full again by then.
	idleAfter = 10 * time.Second
	// minBurst lets a producer that sent nothing for a while send a few at once.
	minBurst = 10
	// crowded is what is suggested to come back after when the work in flight is full.
	crowded = 20 * time.Millisecond
)

// Admission is safe for concurrent use.
type Admission struct {
	cfg      Config
	routers  atomic.Int64  // that share the limits
	overall  *rate.Limiter // nil: no limit
	inFlight atomic.Int64
	refused  *prometheus.CounterVec
	seed     maphash.Seed
	stripes  [stripes]stripe
}

type stripe struct {
	mu      sync.Mutex
	budgets map[key]*budget
	swept   time.Time
}

// key of a budget: a producer, and a namespace where its policy has limits of its own.
type key struct{ producer, prefix string }

// budget is what a producer has left.
type budget struct {
	inFlight atomic.Int64

	mu     sync.Mutex
	limits Limits
	bucket *rate.Limiter // nil: no limit
	used   time.Time     // when it was last asked
}

// New makes an Admission.
func New(cfg Config) *Admission {
	a := &Admission{
		cfg: cfg, seed: maphash.MakeSeed(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_admission_refusals_total", Help: "Messages refused before any work, by reason.",
		}, []string{"code"}),
	}
	a.routers.Store(1)
	if cfg.Overall.Rate > 0 {
		a.overall = bucket(a.share(cfg.Overall).Rate)
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(a.refused)
	}
	return a
}

// Share says how many routers live now, this one included: limits are divided by that from the next message on.
func (a *Admission) Share(routers int) {
	a.routers.Store(int64(max(routers, 1)))
	if a.overall != nil {
		fresh := bucket(a.share(a.cfg.Overall).Rate)
		a.overall.SetLimit(fresh.Limit())
		a.overall.SetBurst(fresh.Burst())
	}
}

func bucket(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), max(perSecond/10, minBurst))
}

// share is this router's part of limits of the mesh.
func (a *Admission) share(l Limits) Limits {
	routers := int(a.routers.Load())
	part := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(n/routers, 1)
	}
	return Limits{Rate: part(l.Rate), InFlight: part(l.InFlight)}
}

// Limits that a producer has here for topics under p (nil: of no particular namespace).
func (a *Admission) Limits(p *policy.Policy) Limits {
	l := a.cfg.Producer
	if p != nil && p.ProducerRate > 0 {
		l.Rate = p.ProducerRate
	}
	if p != nil && p.ProducerInFlight > 0 {
		l.InFlight = p.ProducerInFlight
	}
	return a.share(l)
}

// Slot is admitted work. It is given back with Release, once.
type Slot struct {
	a *Admission
	b *budget
	n int64
}

// Admit takes n messages of one call by a producer into work, or refuses all of them. A call with more messages than the bucket
// holds is let in when there is any token at all, and paid off afterwards.
func (a *Admission) Admit(now time.Time, producer string, p *policy.Policy, n int) (Slot, error) {
	b := a.budget(now, producer, p)
	if err := b.enter(now, n); err != nil {
		a.refused.WithLabelValues(code.Name(err.Code)).Inc()
		return Slot{}, err
	}
	if err := a.enter(now, n); err != nil {
		b.inFlight.Add(-int64(n))
		a.refused.WithLabelValues(code.Name(err.Code)).Inc()
		return Slot{}, err
	}
	return Slot{a, b, int64(n)}, nil
}

// AdmitAnyone holds n messages to the limits of all together alone.
func (a *Admission) AdmitAnyone(now time.Time, n int) (Slot, error) {
	if err := a.enter(now, n); err != nil {
		a.refused.WithLabelValues(code.Name(err.Code)).Inc()
		return Slot{}, err
	}
	return Slot{a, nil, int64(n)}, nil
}

// Release gives a slot back. The zero Slot is nothing.
func (s Slot) Release() {
	if s.a == nil {
		return
	}
	if s.b != nil {
		s.b.inFlight.Add(-s.n)
	}
	s.a.inFlight.Add(-s.n)
}

func (a *Admission) enter(now time.Time, n int) *code.Error {
	if limit := a.share(a.cfg.Overall).InFlight; !within(&a.inFlight, n, limit) {
		return code.Retry(wirev1.Code_CODE_OVERLOADED, crowded, "this router has too many messages in work")
	}
	if a.overall != nil {
		if wait := spend(a.overall, now, n); wait > 0 {
			a.inFlight.Add(-int64(n))
			return code.Retry(wirev1.Code_CODE_OVERLOADED, wait, "this router takes no more messages a second")
		}
	}
	return nil
}

func (b *budget) enter(now time.Time, n int) *code.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !within(&b.inFlight, n, b.limits.InFlight) {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, crowded, "too many messages of this producer are unanswered")
	}
	if b.bucket == nil {
		return nil
	}
	if wait := spend(b.bucket, now, n); wait > 0 {
		b.inFlight.Add(-int64(n))
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, wait, "this producer sends more messages a second than it may")
	}
	return nil
}

// within adds n unless something is in flight and the limit would be passed: one call with many topics may always go alone.
func within(inFlight *atomic.Int64, n, limit int) bool {
	if now := inFlight.Add(int64(n)); limit > 0 && now > int64(limit) && now > int64(n) {
		inFlight.Add(-int64(n))
		return false
	}
	return true
}

// spend takes n tokens; where there is not a single one it takes none and says when there will be.
func spend(l *rate.Limiter, now time.Time, n int) time.Duration {
	if !l.AllowN(now, 1) {
		missing := 1 - l.TokensAt(now)
		return max(time.Duration(missing/float64(l.Limit())*float64(time.Second)), time.Millisecond)
	}
	for n--; n > 0; n -= l.Burst() {
		l.ReserveN(now, min(n, l.Burst()))
	}
	return 0
}

// One is a slot for one message out of those that s admitted: it is released alone, instead of s.
func (s Slot) One() Slot { return Slot{s.a, s.b, 1} }
