// Package guard stands between the store and its database. A circuit breaker refuses at once while
// the database fails, an adaptive limit lets no more work through than gets done, and bulkheads
// keep one class of work from taking what another needs.
package guard

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Class of work: each has its own bulkhead.
type Class int

// Classes.
const (
	// Vital work is what ownership and health ask of the pool. It has Reserved connections of its
	// own, beyond the adaptive limit.
	Vital Class = iota
	// Small statements: sessions, cursors, policies.
	Small
	// Reads of the log.
	Reads
	classes = 3
)

// String names the class as metrics do.
func (c Class) String() string { return [...]string{"vital", "small", "reads"}[c] }

// Reserved is how many connections only vital work may use.
const Reserved = 4

const (
	// maxWaiting callers of one class; further ones are refused.
	maxWaiting = 4096
	// leastLimit of the adaptive limit: one read and one small statement.
	leastLimit = 2
	// impatient is the share of Config.Acquire that the first in line of a class may have waited
	// before newcomers are refused at once.
	impatient = 5
	// look is how often a waiter looks whether the limit has grown without anybody leaving.
	look = 25 * time.Millisecond
)

// Config of a Gate.
type Config struct {
	// Name of the database in errors.
	Name string
	// Conns is the size of the pool, Reads how many of them may read the log. Both are at least 1;
	// Conns is more than Reserved unless it is very small: then vital work shares.
	Conns, Reads int
	// Acquire is how long a caller waits for its turn.
	Acquire time.Duration
	// Fixed: the limit does not adapt.
	Fixed bool
	Now   func() time.Time
}

// Gate admits work. It is safe for concurrent use.
type Gate struct {
	cfg      Config
	reserved int

	mu      sync.Mutex
	breaker Breaker
	limit   *Limit
	rooms   [classes]room
	// starved says that the pool had no connection to give in time, and none was given since; tried
	// is when the last one tried meanwhile.
	starved bool
	tried   time.Time
	refused map[wirev1.Code]uint64
	waited  time.Duration
	waits   uint64
}

// room is the bulkhead of one class.
type room struct {
	busy    int
	waiting []*waiter // first come first
}

type waiter struct {
	since time.Time
	done  chan struct{} // closed once it is decided
	pass  Pass
	err   error
}

// New makes a gate that is open.
func New(cfg Config) *Gate {
	reserved := min(Reserved, (cfg.Conns-1)/2)
	return &Gate{
		cfg: cfg, reserved: reserved, limit: NewLimit(min(leastLimit, cfg.Conns-reserved), cfg.Conns-reserved), refused: map[wirev1.Code]uint64{},
	}
}

// Ticket of admitted work.
type Ticket struct {
	// Trial: the pool had no connection to give before, so this work must not wait long for one.
	Trial bool
	gate  *Gate
	class Class
	slot  bool
	pass  Pass
	begun time.Time
}

// Enter waits for a turn, ctx's end or Config.Acquire. What it refuses is a *code.Error with a time
// to come back: UNAVAILABLE while the database fails, OVERLOADED where too much waits. Leave must
// be called once on the ticket.
func (g *Gate) Enter(ctx context.Context, class Class) (*Ticket, error) {
	g.mu.Lock()
	now := g.cfg.Now()
	r := &g.rooms[class]
	if err := g.refuse(r, now); err != nil {
		g.refused[err.Code]++
		g.mu.Unlock()
		return nil, err
	}
	w, trial := &waiter{since: now, done: make(chan struct{})}, g.starved
	r.waiting = append(r.waiting, w)
	g.admit(now)
	g.mu.Unlock()
	if err := g.await(ctx, class, w); err != nil {
		return nil, err
	}
	return &Ticket{Trial: trial, gate: g, class: class, slot: true, pass: w.pass, begun: g.cfg.Now()}, nil
}

// Try is Enter for what has a connection of its own: only the breaker is asked.
func (g *Gate) Try() (*Ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	pass, ok := g.breaker.Enter(now)
	if !ok {
		g.refused[wirev1.Code_CODE_UNAVAILABLE]++
		return nil, g.away()
	}
	return &Ticket{gate: g, pass: pass, begun: now}, nil
}

// Note tells the breaker of work that did not ask: what a connection of its own went through.
func (g *Gate) Note(o Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.State() != Closed {
		return // probes decide
	}
	now := g.cfg.Now()
	if pass, ok := g.breaker.Enter(now); ok {
		g.leave(pass, o, now)
	}
}

// Leave ends the work.
func (t *Ticket) Leave(o Outcome) {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	if t.slot {
		g.rooms[t.class].busy--
		if o == Answered || o == Failed {
			g.limit.Done(t.class, now.Sub(t.begun), o == Answered, now)
		}
	}
	switch {
	case o == Starved:
		g.starved = true
	case o == Answered && t.slot: // what has a connection of its own got none from the pool
		g.starved = false
	}
	g.leave(t.pass, o, now)
	g.admit(now)
}

// leave tells the breaker; when it opens, whoever waits is refused. g.mu is held.
func (g *Gate) leave(p Pass, o Outcome, now time.Time) {
	before := g.breaker.Opened()
	g.breaker.Leave(p, o, now)
	if g.breaker.Opened() == before {
		return
	}
	for c := range g.rooms {
		for _, w := range g.rooms[c].waiting {
			g.settle(w, g.away(), now)
		}
		g.rooms[c].waiting = nil
	}
}

// refuse says why a newcomer must not even wait. g.mu is held.
func (g *Gate) refuse(r *room, now time.Time) *code.Error {
	switch {
	case g.breaker.State() != Closed && (g.breaker.probing || now.Sub(g.breaker.probed) < g.breaker.pause):
		return g.away()
	case g.starved && now.Sub(g.tried) < ProbeEvery:
		return g.overloaded("no connection of the pool comes free")
	case len(r.waiting) >= maxWaiting:
		return g.overloaded(fmt.Sprintf("%d wait already", len(r.waiting)))
	case len(r.waiting) > 0 && now.Sub(r.waiting[0].since) > g.cfg.Acquire/impatient:
		return g.overloaded(fmt.Sprintf("others have waited for %s already", now.Sub(r.waiting[0].since).Round(time.Millisecond)))
	}
	if g.starved {
		g.tried = now
	}
	return nil
}

func (g *Gate) away() *code.Error {
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, g.breaker.RetryAfter(), g.cfg.Name+" is away")
}

func (g *Gate) overloaded(why string) *code.Error {
	return code.Retry(wirev1.Code_CODE_OVERLOADED, g.cfg.Acquire/impatient, g.cfg.Name+": too much to do: "+why)
}

// admit lets in whoever may go on now: the class with the fewest at work first. g.mu is held.
func (g *Gate) admit(now time.Time) {
	for {
		best := -1
		for c := range g.rooms {
			if len(g.rooms[c].waiting) > 0 && g.room(Class(c), now) && (best < 0 || g.rooms[c].busy < g.rooms[best].busy) {
				best = c
			}
		}
		if best < 0 {
			return
		}
		r := &g.rooms[best]
		pass, ok := g.breaker.Enter(now)
		if !ok {
			return
		}
		w := r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		r.busy++
		w.pass = pass
		g.settle(w, nil, now)
	}
}

func (g *Gate) settle(w *waiter, err *code.Error, now time.Time) {
	if err != nil {
		w.err = err
		g.refused[err.Code]++
	}
	if took := now.Sub(w.since); took > 0 {
		g.waits++
		g.waited += took
	}
	close(w.done)
}

// room reports whether one more of a class may be at work. g.mu is held.
func (g *Gate) room(c Class, now time.Time) bool {
	limit := g.allowed(now)
	vital := g.rooms[Vital].busy
	if c == Vital {
		return vital < g.reserved || g.busy() < g.cfg.Conns
	}
	rest := g.rooms[Small].busy + g.rooms[Reads].busy + max(0, vital-g.reserved)
	if rest >= limit {
		return false
	}
	mine := g.rooms[c].busy
	if c == Reads {
		return mine < max(1, limit*g.cfg.Reads/g.cfg.Conns)
	}
	return mine < max(1, limit-1) // a read always finds room
}

func (g *Gate) busy() (n int) {
	for c := range g.rooms {
		n += g.rooms[c].busy
	}
	return n
}

// allowed is how many small statements and reads may be at work together. g.mu is held.
func (g *Gate) allowed(now time.Time) int {
	limit := g.cfg.Conns - g.reserved
	if !g.cfg.Fixed {
		limit = min(limit, g.limit.Now())
	}
	return max(1, int(math.Ceil(float64(limit)*g.breaker.Share(now))))
}

// await waits for the decision.
func (g *Gate) await(ctx context.Context, class Class, w *waiter) error {
	select {
	case <-w.done:
		return verdict(w)
	default:
	}
	patience := time.NewTimer(g.cfg.Acquire)
	defer patience.Stop()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-w.done:
			return verdict(w)
		case <-ticker.C:
			g.mu.Lock()
			g.admit(g.cfg.Now())
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

// giveUp takes a waiter out of the line. One that was admitted meanwhile goes on: why nil; or
// leaves at once: its caller has gone.
func (g *Gate) giveUp(class Class, w *waiter, why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	select {
	case <-w.done:
		if w.err == nil && why != nil {
			g.rooms[class].busy--
			g.leave(w.pass, Abandoned, now)
			g.admit(now)
			return why
		}
		return verdict(w)
	default:
	}
	r := &g.rooms[class]
	for i, other := range r.waiting {
		if other == w {
			r.waiting = append(r.waiting[:i:i], r.waiting[i+1:]...)
			break
		}
	}
	g.waits++
	g.waited += now.Sub(w.since)
	if why != nil {
		return why
	}
	err := g.overloaded(fmt.Sprintf("no turn within %s", g.cfg.Acquire))
	g.refused[err.Code]++
	return err
}
