// Package admission refuses, early and with a time to come back, what a producer sends beyond its
// share. It never makes anybody wait.
package admission

import (
	"cmp"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

// Limits of one producer, or of all together.
type Limits struct {
	// Rate in messages a second, InFlight in messages unanswered; 0: none.
	Rate, InFlight int
}

// Config of Admission. Limits of producers and Overall are the mesh's: each live router enforces
// its share.
type Config struct {
	// Producer holds for each producer, unless a namespace's policy says otherwise.
	Producer Limits
	// Own are those of one producer, which come before Producer's; 0: it has none. nil: nobody has.
	Own func(producer string) Limits
	// Overall holds for all producers together.
	Overall Limits
	// MaxBytes of messages in work in this router; 0: no limit.
	MaxBytes int
	// Store reports whether a durable message for a topic may go on, and how much waits for the
	// topic's store; Edges the same of any message, for the way to edges. Pressure is 0 where
	// nothing waits and 1 where all that may. nil: it always may.
	Store func(topic string, priority uint32) (pressure float64, ok bool)
	Edges func(priority uint32) (pressure float64, ok bool)
	// Lag is the pressure of what this router has no time for (shed.Passes).
	Lag      func() (pressure float64)
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
	// crowded is what is suggested to come back after when a producer's work in flight is full.
	crowded = 20 * time.Millisecond
)

// Admission is safe for concurrent use.
type Admission struct {
	cfg      Config
	routers  atomic.Int64 // that share the limits
	overall  *tokens      // nil: no limit
	inFlight atomic.Int64
	bytes    atomic.Int64
	work     shed.Gate
	refused  [reasons]prometheus.Counter
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
	penalty  *tokens // refusals that are forgiven; made with the first

	mu     sync.Mutex
	limits Limits
	bucket *tokens   // nil: no limit
	used   time.Time // when it was last asked

	answered time.Time // when the last of the calls that wait for their penalty is answered
}

// New makes an Admission.
func New(cfg Config) *Admission {
	a := &Admission{
		cfg: cfg, seed: maphash.MakeSeed(),
	}
	a.count(cfg.Registry)
	a.routers.Store(1)
	if cfg.Overall.Rate > 0 {
		a.overall = bucket(a.share(cfg.Overall).Rate)
	}
	return a
}

// Share says how many routers live now, this one included: limits are divided by that from the next
// message on.
func (a *Admission) Share(routers int) {
	a.routers.Store(int64(max(routers, 1)))
	if a.overall != nil {
		perSecond := a.share(a.cfg.Overall).Rate
		a.overall.change(time.Time{}, perSecond, burst(perSecond))
	}
}

func bucket(perSecond int) *tokens { return newTokens(perSecond, burst(perSecond)) }

func burst(perSecond int) int { return max(perSecond/10, minBurst) }

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
func (a *Admission) Limits(producer string, p *policy.Policy) Limits {
	l := a.cfg.Producer
	if a.cfg.Own != nil {
		own := a.cfg.Own(producer)
		l = Limits{Rate: cmp.Or(own.Rate, l.Rate), InFlight: cmp.Or(own.InFlight, l.InFlight)}
	}
	if p != nil && p.ProducerRate > 0 {
		l.Rate = p.ProducerRate
	}
	if p != nil && p.ProducerInFlight > 0 {
		l.InFlight = p.ProducerInFlight
	}
	return a.share(l)
}

// Ask is what wants to be taken into work.
type Ask struct {
	// Producer that is held to its limits; "": the message is committed already, and nobody's
	// limits refuse it.
	Producer string
	// Policy of the namespace; nil: of none in particular.
	Policy *policy.Policy
	// Topic of the message; "": it has several, and Stored is asked for each durable one.
	Topic string
	// Durable: it needs the topic's store.
	Durable  bool
	Priority uint32
	// Messages of one call, and the bytes that each takes up.
	Messages, Bytes int
	// Patient: where nothing but the producer's own limits is in the way, it comes again. Admit
	// then says Later, counts nothing and charges nothing.
	Patient bool
}

// Later is what a Patient ask is told instead of being refused.
type Later struct {
	// Wait is when to ask again.
	Wait time.Duration
	// Crowded: as soon as a message of the producer is answered there may be room, before that.
	Crowded bool
}

func (l *Later) Error() string { return "wait before trying again: " + l.Wait.String() }

// Slot is admitted work. It is given back with Release, once.
type Slot struct {
	a        *Admission
	b        *budget
	n, bytes int64 // bytes of each
}

// Admit takes all messages of q into work, or refuses all of them. A call with more messages than
// the bucket holds is let in when there is any token at all, and paid off afterwards.
func (a *Admission) Admit(now time.Time, q Ask) (Slot, error) {
	s, why, err := a.admit(now, &q)
	if err != nil && q.Patient && (why == byProducerRate || why == byProducerInFlight) {
		return Slot{}, &Later{Wait: err.RetryAfter, Crowded: why == byProducerInFlight}
	}
	if err != nil {
		return Slot{}, a.refuse(now, q.Producer, q.Messages, why, err)
	}
	return s, nil
}

func (a *Admission) admit(now time.Time, q *Ask) (Slot, reason, *code.Error) {
	if why, err := a.shed(q); err != nil {
		return Slot{}, why, err
	}
	s := Slot{a: a, n: int64(q.Messages), bytes: int64(q.Bytes)}
	if q.Producer != "" {
		s.b = a.budget(now, q.Producer, q.Policy)
		if why, err := s.b.enter(now, q.Messages); err != nil {
			return Slot{}, why, err
		}
	}
	if why, err := a.enter(now, &s); err != nil {
		if s.b != nil {
			s.b.inFlight.Add(-s.n)
		}
		return Slot{}, why, err
	}
	return s, 0, nil
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
	s.a.bytes.Add(-s.n * s.bytes)
}

// One is a slot for one message out of those that s admitted: it is released alone, instead of s.
func (s Slot) One() Slot {
	s.n = 1
	return s
}

func (a *Admission) enter(now time.Time, s *Slot) (reason, *code.Error) {
	if !within(&a.inFlight, s.n, int64(a.share(a.cfg.Overall).InFlight)) {
		return byWork, overloaded(1, "this router has too many messages in progress")
	}
	if !within(&a.bytes, s.n*s.bytes, int64(a.cfg.MaxBytes)) {
		a.inFlight.Add(-s.n)
		return byWork, overloaded(1, "this router has too many bytes of messages in progress")
	}
	if a.overall != nil {
		if wait := a.overall.spend(now, int(s.n)); wait > 0 {
			a.inFlight.Add(-s.n)
			a.bytes.Add(-s.n * s.bytes)
			return byRate, code.Retry(wirev1.Code_CODE_OVERLOADED, shed.Jitter(wait), "this router is at its limit of messages a second")
		}
	}
	return 0, nil
}

func (b *budget) enter(now time.Time, n int) (reason, *code.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !within(&b.inFlight, int64(n), int64(b.limits.InFlight)) {
		return byProducerInFlight, code.Retry(wirev1.Code_CODE_RATE_LIMITED, crowded, "too many messages of this producer are unanswered")
	}
	if b.bucket == nil {
		return 0, nil
	}
	if wait := b.bucket.spend(now, n); wait > 0 {
		b.inFlight.Add(-int64(n))
		return byProducerRate, code.Retry(wirev1.Code_CODE_RATE_LIMITED, wait, "this producer is above its limit of messages a second")
	}
	return 0, nil
}

// within adds n unless something is in flight and the limit would be passed: one call with many
// topics may always go alone.
func within(inFlight *atomic.Int64, n, limit int64) bool {
	if now := inFlight.Add(n); limit > 0 && now > limit && now > n {
		inFlight.Add(-n)
		return false
	}
	return true
}
