// Package sessions holds the durable sessions of an edge's connections: who has one, taking it over
// from its older holder, and writing cursors, many at a time.
package sessions

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/turns"
)

// Store is what sessions need of the store.
type Store interface {
	AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error)
	WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error)
}

// Config of Sessions.
type Config struct {
	Edge  string
	Store Store
	// Post hands an event to a loop.
	Post func(loop uint16, e exchange.Event)
	// Owner is the store that has a session, as far as is known; nil: one has all. Sessions are
	// kept apart by it: an owner that is slow or away holds up its own.
	Owner func(user, name string) string
	// Yield asks another edge to give a session up, and reports whether it did.
	Yield func(ctx context.Context, edge, user, name string) bool
	// Over tells another edge that holds of a session under generations older than this one are
	// over, and reports whether there is nothing more to tell it.
	Over func(ctx context.Context, edge, user, name string, generation uint64) bool
	Log  *slog.Logger
	// FlushEvery is how long a write may wait for others; 0: 1 s.
	FlushEvery time.Duration
}

// Bounds and paces.
const (
	attachesWaiting = 100_000
	attachesAtATime = 64 // of one owner
	tellsAtATime    = 1024
	yieldPatience   = 500 * time.Millisecond
	scanEvery       = 50 * time.Millisecond
	// bytes of one session that can't be stored; beyond, its hold ends: that costs redelivery, no
	// loss
	maxPending = 1 << 20
)

// Sessions is a lifecycle.Part; its methods never block but for Flush, Yield and Stop. One
// goroutine owns everything.
type Sessions struct {
	cfg   Config
	ops   *serial.Queue
	group *lifecycle.Group
	tells chan struct{} // edges being told that they have lost a session

	// Its own.
	slots   map[string]chan struct{} // attaches under way, by owner
	all     map[key]*session
	dirty   map[*session]bool // all that have something to be written
	line    line              // of these, but for those that are being written
	writes  map[string]int    // WriteCursors under way, by owner
	flushed []func()          // called once nothing is dirty

	// Held sessions now.
	Held atomic.Int64
	// Written writes, Stale ones that a newer holder made void, and Failed ones that are tried
	// again.
	Written, Stale, Failed atomic.Uint64
	// Overflowed writes were dropped at a bound, Rejected ones because the store refused them for
	// good.
	Overflowed, Rejected atomic.Uint64
	// Attaches and TakenOver sessions.
	Attaches, TakenOver atomic.Uint64
	// Untold edges could not be told that they have lost a session: its connection learns it with
	// its next write.
	Untold atomic.Uint64
}

type key struct{ user, name string }

// session that is held here, being attached, or has something to be written.
type session struct {
	key
	held       bool
	conn       exchange.Conn
	generation uint64
	cut        bool // held as far as the store knows, by a connection that was told that it lost it

	attaches []*attach // the first is under way
	pending  *pending
	due      time.Time // sessions.schedule comes after a change of it
	writing  bool
	in       *byDue                 // nil: it is not in line
	at       int                    // its place there
	freed    map[chan struct{}]bool // closed when the hold ends: somebody waits for it

	// void says that holds under older generations than this one are over, as another edge or a
	// router said, and why. An attach under way may end in one.
	void uint64
	why  error
}

// New makes sessions.
func New(cfg Config) *Sessions {
	if cfg.FlushEvery == 0 {
		cfg.FlushEvery = time.Second
	}
	if cfg.Owner == nil {
		cfg.Owner = func(string, string) string { return "" }
	}
	return &Sessions{
		cfg: cfg, ops: serial.New(), slots: map[string]chan struct{}{}, tells: make(chan struct{}, tellsAtATime),
		all: map[key]*session{}, dirty: map[*session]bool{}, writes: map[string]int{},
	}
}

// Start begins to serve.
func (s *Sessions) Start(context.Context) error {
	s.group = lifecycle.NewGroup(context.Background())
	s.group.Go("edge-sessions", s.run)
	return nil
}

// lastWrites bounds how long Stop waits for a store that is away.
const lastWrites = 3 * time.Second

// Stop writes what waits, as far as ctx and the store allow, and ends.
func (s *Sessions) Stop(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, lastWrites)
	defer cancel()
	return errors.Join(s.Flush(within), s.group.Stop(ctx))
}

func (s *Sessions) run(ctx context.Context) {
	scan := time.NewTimer(scanEvery)
	defer scan.Stop()
	at := make(chan struct{})
	close(at)
	for more := false; ; {
		var once <-chan struct{} // there is more to be flushed at once
		if more {
			once = at
		}
		select {
		case <-ctx.Done():
			return
		case <-s.ops.Ready():
			s.ops.RunFor(turns.Slice)
		case <-scan.C:
		case <-once:
		}
		more = s.flush(time.Now())
		// Nothing looks after sessions that owe nothing: an edge with idle connections sleeps.
		if len(s.dirty) > 0 {
			scan.Reset(scanEvery)
		}
	}
}

func (s *Sessions) get(k key) *session {
	one := s.all[k]
	if one == nil {
		one = &session{key: k}
		s.all[k] = one
	}
	return one
}

// forget drops a session of which nothing is left to do. Where it is not held, nothing waits to be
// written.
func (s *Sessions) forget(one *session) {
	if !one.held && len(one.attaches) == 0 && !one.writing {
		delete(s.all, one.key)
	}
}

// Save merges w, which is its to keep, into what waits for the session.
func (s *Sessions) Save(conn exchange.Conn, r uint32, w *meshv1.SessionWrite, now bool) {
	s.ops.Do(func() { s.save(conn, r, w, now) })
}

func (s *Sessions) save(conn exchange.Conn, r uint32, w *meshv1.SessionWrite, now bool) {
	one := s.all[key{w.GetUser(), w.GetName()}]
	if w.GetGeneration() == 0 && w.GetDetach() {
		s.giveUp(one, conn)
		return
	}
	if one == nil || !one.held || one.cut || one.generation != w.GetGeneration() {
		s.Stale.Add(1)
		s.cfg.Post(conn.Loop, exchange.Detached{Conn: conn})
		s.answer([]ref{{conn, r}}, errTakenOver)
		return
	}
	if one.pending == nil {
		one.pending = newPending(one.generation)
		one.due = time.Now().Add(s.cfg.FlushEvery)
	}
	one.pending.merge(w)
	if r > 0 {
		one.pending.refs = append(one.pending.refs, ref{conn, r})
	}
	s.bound(one)
	if now && one.pending.tries == 0 {
		one.due = time.Time{}
	}
	s.schedule(one)
}

var (
	errTakenOver = code.New(wirev1.Code_CODE_SESSION_TAKEN_OVER, "another connection has the session")
	errDeleted   = code.New(wirev1.Code_CODE_NOT_FOUND, "the session is gone: it was deleted")
)

// bound lets go of what a session can't have stored for long.
func (s *Sessions) bound(one *session) {
	p := one.pending
	if p.size <= maxPending {
		return
	}
	if p.tries == 0 { // a busy session, not a store that is away: write at once
		one.due = time.Time{}
		return
	}
	s.Overflowed.Add(1)
	s.cutOff(one, code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "the store is away and too much waits for it"))
}

// cutOff ends a hold of which a part can't be stored. The holder's later positions would count it
// as stored, dead letters too, so none of them may be: all that is left to write is that nobody
// holds the session, and who attaches next begins where it was.
func (s *Sessions) cutOff(one *session, why error) {
	p := one.pending
	s.answer(p.refs, why)
	fresh := newPending(p.generation)
	fresh.detach, fresh.tries = true, p.tries
	one.pending = fresh
	s.schedule(one)
	if !p.detach {
		one.cut = true
		s.cfg.Post(one.conn.Loop, exchange.Detached{Conn: one.conn, Err: why})
	}
}

func (s *Sessions) answer(refs []ref, err error) {
	for _, r := range refs {
		if r.ref > 0 {
			s.cfg.Post(r.conn.Loop, exchange.Saved{Conn: r.conn, Ref: r.ref, Err: err})
		}
	}
}

// end of a hold: whoever waits for it goes on.
func (s *Sessions) end(one *session) {
	if one.held {
		one.held, one.cut = false, false
		s.Held.Add(-1)
	}
	for freed := range one.freed {
		close(freed)
	}
	one.freed = nil
}

// awaitEnd returns what is closed when the hold ends. What waits to be written is written at once,
// though the store did not take it before.
func (s *Sessions) awaitEnd(one *session) (freed chan struct{}) {
	freed = make(chan struct{})
	if one.freed == nil {
		one.freed = map[chan struct{}]bool{}
	}
	one.freed[freed] = true
	if one.pending != nil && one.pending.tries > 0 {
		one.due = time.Time{}
		s.schedule(one)
	}
	return freed
}

// lost ends a hold that is void: a newer one took its place, or the session was deleted.
func (s *Sessions) lost(one *session, why error) {
	s.TakenOver.Add(1)
	s.cfg.Post(one.conn.Loop, exchange.Detached{Conn: one.conn, Err: why})
	s.discard(one, why)
	s.end(one)
}

// discard lets go of what would be refused as stale.
func (s *Sessions) discard(one *session, why error) {
	if one.pending != nil {
		s.Stale.Add(1)
		s.answer(one.pending.refs, why)
		one.pending = nil
	}
	delete(s.dirty, one)
}
