// Package dbgate admits calls to the database. A circuit breaker refuses calls at once while the
// database fails, an adaptive limit keeps the number of concurrent calls where the database gets
// most done, and bulkheads keep one class of calls from using what another class needs.
package dbgate

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Class of calls; each has its own bulkhead.
type Class int

// Classes.
const (
	// Vital calls are those of ownership and health. They have Reserved connections of their own,
	// beyond the adaptive limit.
	Vital Class = iota
	// Small statements: sessions, cursors, policies.
	Small
	// Reads of the log.
	Reads
	classes = 3
)

// String names the class as metrics do.
func (c Class) String() string { return [...]string{"vital", "small", "reads"}[c] }

// Reserved is how many connections only vital calls may use.
const Reserved = 4

const (
	// maxWaiting is how many callers of one class may wait; further ones are refused.
	maxWaiting = 4096
	// leastLimit of the adaptive limit: one read and one small statement.
	leastLimit = 2
	// queueWaitShare: once the first caller of a class has waited for this part of Config.Acquire
	// (1/5), new callers are refused at once.
	queueWaitShare = 5
	// recheckEvery is how often a waiting caller checks whether the limit has grown although no
	// call has ended.
	recheckEvery = 25 * time.Millisecond
)

// Config of a Gate.
type Config struct {
	// Name of the database in errors.
	Name string
	// Conns is the size of the pool, Reads how many of them may read the log. Both are at least 1;
	// Conns is more than Reserved unless it is very small: then vital work shares.
	Conns, Reads int
	// Acquire is how long a caller may wait to be admitted.
	Acquire time.Duration
	// Fixed: the limit does not adapt.
	Fixed bool
	Now   func() time.Time
}

// Gate admits calls. It is safe for concurrent use.
type Gate struct {
	cfg      Config
	reserved int

	mu        sync.Mutex
	breaker   Breaker
	limit     *Limit
	bulkheads [classes]bulkhead
	// poolExhausted: the last call found no free connection in the pool in time; lastTrial is when
	// a call last tried since.
	poolExhausted bool
	lastTrial     time.Time
	refused       map[wirev1.Code]uint64
	waitTime      time.Duration
	waits         uint64
}

// bulkhead counts the calls of one class.
type bulkhead struct {
	active  int
	waiting []*waiter // first come first
}

type waiter struct {
	since time.Time
	done  chan struct{} // closed once it is decided
	pass  Pass
	err   error
}

// New makes a gate whose breaker is closed.
func New(cfg Config) *Gate {
	reserved := min(Reserved, (cfg.Conns-1)/2)
	return &Gate{
		cfg: cfg, reserved: reserved, limit: NewLimit(min(leastLimit, cfg.Conns-reserved), cfg.Conns-reserved), refused: map[wirev1.Code]uint64{},
	}
}

// Ticket of an admitted call.
type Ticket struct {
	// Trial: the pool was exhausted before, so this call must not wait long for a connection.
	Trial bool
	gate  *Gate
	class Class
	slot  bool
	pass  Pass
	begun time.Time
}

// Enter waits until the call is admitted, ctx ends or Config.Acquire has passed. A refusal is a
// *code.Error with the time after which to try again: UNAVAILABLE while the database fails,
// OVERLOADED where too many calls wait. Leave must be called once on the ticket.
func (g *Gate) Enter(ctx context.Context, class Class) (*Ticket, error) {
	g.mu.Lock()
	now := g.cfg.Now()
	r := &g.bulkheads[class]
	if err := g.checkNewcomer(r, now); err != nil {
		g.refused[err.Code]++
		g.mu.Unlock()
		return nil, err
	}
	w, trial := &waiter{since: now, done: make(chan struct{})}, g.poolExhausted
	r.waiting = append(r.waiting, w)
	g.admitWaiting(now)
	g.mu.Unlock()
	if err := g.awaitTurn(ctx, class, w); err != nil {
		return nil, err
	}
	return &Ticket{Trial: trial, gate: g, class: class, slot: true, pass: w.pass, begun: g.cfg.Now()}, nil
}

// Try is Enter for a call that has a connection of its own: only the breaker decides.
func (g *Gate) Try() (*Ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	pass, ok := g.breaker.Enter(now)
	if !ok {
		g.refused[wirev1.Code_CODE_UNAVAILABLE]++
		return nil, g.errUnavailable()
	}
	return &Ticket{gate: g, pass: pass, begun: now}, nil
}

// Note reports to the breaker the outcome of a call that was not admitted by Enter or Try, since it
// had a connection of its own.
func (g *Gate) Note(o Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.State() != Closed {
		return // probes decide
	}
	now := g.cfg.Now()
	if pass, ok := g.breaker.Enter(now); ok {
		g.noteOutcome(pass, o, now)
	}
}

// Leave ends the call.
func (t *Ticket) Leave(o Outcome) {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	if t.slot {
		g.bulkheads[t.class].active--
		if o == Answered || o == Failed {
			g.limit.Done(t.class, now.Sub(t.begun), o == Answered, now)
		}
	}
	switch {
	case o == PoolExhausted:
		g.poolExhausted = true
	case o == Answered && t.slot: // what has a connection of its own got none from the pool
		g.poolExhausted = false
	}
	g.noteOutcome(t.pass, o, now)
	g.admitWaiting(now)
}

// noteOutcome reports an outcome to the breaker; when the breaker opens, all waiting callers are
// refused. g.mu is held.
func (g *Gate) noteOutcome(p Pass, o Outcome, now time.Time) {
	before := g.breaker.Opened()
	g.breaker.Leave(p, o, now)
	if g.breaker.Opened() == before {
		return
	}
	for c := range g.bulkheads {
		for _, w := range g.bulkheads[c].waiting {
			g.decide(w, g.errUnavailable(), now)
		}
		g.bulkheads[c].waiting = nil
	}
}

// checkNewcomer returns why a new caller must not even wait; nil: it may. g.mu is held.
func (g *Gate) checkNewcomer(r *bulkhead, now time.Time) *code.Error {
	switch {
	case g.breaker.State() != Closed && (g.breaker.probing || now.Sub(g.breaker.probedAt) < g.breaker.pause):
		return g.errUnavailable()
	case g.poolExhausted && now.Sub(g.lastTrial) < ProbeEvery:
		return g.errOverloaded("no connection of the pool becomes free")
	case len(r.waiting) >= maxWaiting:
		return g.errOverloaded(fmt.Sprintf("%d calls wait already", len(r.waiting)))
	case len(r.waiting) > 0 && now.Sub(r.waiting[0].since) > g.cfg.Acquire/queueWaitShare:
		return g.errOverloaded(fmt.Sprintf("other calls have waited for %s already", now.Sub(r.waiting[0].since).Round(time.Millisecond)))
	}
	if g.poolExhausted {
		g.lastTrial = now
	}
	return nil
}

func (g *Gate) errUnavailable() *code.Error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, g.breaker.RetryAfter(), g.cfg.Name+" is away")
}

func (g *Gate) errOverloaded(why string) *code.Error {
	return code.Retry(wirev1.Code_CODE_OVERLOADED, g.cfg.Acquire/queueWaitShare, g.cfg.Name+" is overloaded: "+why)
}

// admitWaiting admits waiting callers while there is room, first those of the class with the fewest
// active calls. g.mu is held.
func (g *Gate) admitWaiting(now time.Time) {
	for {
		best := -1
		for c := range g.bulkheads {
			if len(g.bulkheads[c].waiting) > 0 && g.hasRoom(Class(c), now) && (best < 0 || g.bulkheads[c].active < g.bulkheads[best].active) {
				best = c
			}
		}
		if best < 0 {
			return
		}
		r := &g.bulkheads[best]
		pass, ok := g.breaker.Enter(now)
		if !ok {
			return
		}
		w := r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		r.active++
		w.pass = pass
		g.decide(w, nil, now)
	}
}

func (g *Gate) decide(w *waiter, err *code.Error, now time.Time) {
	if err != nil {
		w.err = err
		g.refused[err.Code]++
	}
	if took := now.Sub(w.since); took > 0 {
		g.waits++
		g.waitTime += took
	}
	close(w.done)
}

// hasRoom reports whether one more call of a class may be active. g.mu is held.
func (g *Gate) hasRoom(c Class, now time.Time) bool {
	limit := g.allowed(now)
	vital := g.bulkheads[Vital].active
	if c == Vital {
		return vital < g.reserved || g.activeCalls() < g.cfg.Conns
	}
	rest := g.bulkheads[Small].active + g.bulkheads[Reads].active + max(0, vital-g.reserved)
	if rest >= limit {
		return false
	}
	mine := g.bulkheads[c].active
	if c == Reads {
		return mine < max(1, limit*g.cfg.Reads/g.cfg.Conns)
	}
	return mine < max(1, limit-1) // a read always finds room
}

func (g *Gate) activeCalls() (n int) {
	for c := range g.bulkheads {
		n += g.bulkheads[c].active
	}
	return n
}

// allowed returns how many small statements and reads may be active together. g.mu is held.
func (g *Gate) allowed(now time.Time) int {
	limit := g.cfg.Conns - g.reserved
	if !g.cfg.Fixed {
		limit = min(limit, g.limit.Now())
	}
	return max(1, int(math.Ceil(float64(limit)*g.breaker.Share(now))))
}

// awaitTurn waits for the decision.
func (g *Gate) awaitTurn(ctx context.Context, class Class, w *waiter) error {
	select {
	case <-w.done:
		return verdict(w)
	default:
	}
	patience := time.NewTimer(g.cfg.Acquire)
	defer patience.Stop()
	ticker := time.NewTicker(recheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.done:
			return verdict(w)
		case <-ticker.C:
			g.mu.Lock()
			g.admitWaiting(g.cfg.Now())
			g.mu.Unlock()
		case <-ctx.Done():
			return g.giveUp(class, w, ctx.Err())
		case <-patience.C:
			return g.giveUp(class, w, nil)
		}
	}
}

func verdict(w *waiter) error {
	if w.err != nil {
		return w.err
	}
	return nil
}

// giveUp removes a waiting caller. If it was admitted meanwhile, it continues where why is nil, and
// otherwise leaves at once, since its caller has gone.
func (g *Gate) giveUp(class Class, w *waiter, why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	select {
	case <-w.done:
		if w.err == nil && why != nil {
			g.bulkheads[class].active--
			g.noteOutcome(w.pass, Abandoned, now)
			g.admitWaiting(now)
			return why
		}
		return verdict(w)
	default:
	}
	r := &g.bulkheads[class]
	for i, other := range r.waiting {
		if other == w {
			r.waiting = append(r.waiting[:i:i], r.waiting[i+1:]...)
			break
		}
	}
	g.waits++
	g.waitTime += now.Sub(w.since)
	if why != nil {
		return why
	}
	err := g.errOverloaded(fmt.Sprintf("no connection became free within %s", g.cfg.Acquire))
	g.refused[err.Code]++
	return err
}
