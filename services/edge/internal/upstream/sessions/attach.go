package sessions

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// attach of a connection to a session.
type attach struct {
	conn         exchange.Conn
	ttl          uint32
	connectionID uint64
	origin       string      // the client's address, or ""
	givenUp      atomic.Bool // the connection is gone
}

// attachTimeout bounds one question to the store, attachPauses lie between attempts: a takeover of
// shards takes a few seconds.
const attachTimeout = 5 * time.Second

// owedPatience is how long an attach waits for what the same session has to write here. The store
// that does not take it is not likely to attach it.
const owedPatience = 3 * time.Second

var attachPauses = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}

var errGivenUp = errors.New("the connection is gone")

// Attach makes conn the holder of a session, after the present holder gave it up or did not answer.
func (s *Sessions) Attach(conn exchange.Conn, user, name string, ttl uint32, connectionID uint64, origin string) {
	admitted := s.ops.TryDo(attachesWaiting, func() {
		one := s.get(key{user, name})
		one.attaches = append(one.attaches, &attach{conn: conn, ttl: ttl, connectionID: connectionID, origin: origin})
		if len(one.attaches) == 1 {
			s.begin(one)
		}
	})
	if !admitted {
		s.cfg.Post(conn.Loop, exchange.Attached{
			Conn: conn, Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many sessions are being resumed"),
		})
	}
}

// begin asks the holder on this edge to yield, else looks for one elsewhere; then the session is
// raised. Who is gone by now asks nobody.
func (s *Sessions) begin(one *session) {
	for one.attaches[0].givenUp.Load() {
		if one.attaches = one.attaches[1:]; len(one.attaches) == 0 {
			s.forget(one)
			return
		}
	}
	a := one.attaches[0]
	if !one.held {
		s.raise(one, a, true)
		return
	}
	s.cfg.Post(one.conn.Loop, exchange.Yield{Conn: one.conn})
	s.yieldHere(one, a, s.awaitEnd(one), 0)
}

// yieldHere waits for the hold's end, then raises the session. A holder has yieldPatience.
// Positions that the store did not take yet would be void with the attach, and what was ACKed come
// again: they have owedPatience.
func (s *Sessions) yieldHere(one *session, a *attach, freed chan struct{}, waited time.Duration) {
	s.group.Go("edge-sessions-yield", func(ctx context.Context) {
		patience := time.NewTimer(yieldPatience)
		defer patience.Stop()
		select {
		case <-freed:
		case <-patience.C:
		case <-ctx.Done():
		}
		s.ops.Do(func() {
			waited += yieldPatience
			if one.freed[freed] && one.owes() && waited < owedPatience && !a.givenUp.Load() {
				s.yieldHere(one, a, freed, waited)
				return
			}
			delete(one.freed, freed)
			s.raise(one, a, false)
		})
	})
}

// raise has the store make a the holder.
func (s *Sessions) raise(one *session, a *attach, elsewhere bool) {
	slots := s.slotsOf(s.cfg.Owner(one.user, one.name))
	s.group.Go("edge-sessions-attach", func(ctx context.Context) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
		}
		if elsewhere && !a.givenUp.Load() { // it may have waited for long
			s.yieldElsewhere(ctx, one.key, a)
		}
		if a.givenUp.Load() { // the session stays with whom it has
			s.ops.Do(func() { s.attached(one, a, nil, errGivenUp) })
			return
		}
		resp, err := s.ask(ctx, a, &meshv1.AttachSessionRequest{
			User: one.user, Name: one.name, EdgeId: s.cfg.Edge, ConnectionId: a.connectionID, TtlS: a.ttl, Origin: a.origin,
		})
		s.ops.Do(func() { s.attached(one, a, resp, err) })
	})
}

// ownersKept is how many owners' slots are kept; beyond, those of owners that have nothing to do
// are forgotten.
const ownersKept = 256

// slotsOf are for the attaches of one owner's sessions.
func (s *Sessions) slotsOf(owner string) chan struct{} {
	slots := s.slots[owner]
	if slots == nil {
		if len(s.slots) >= ownersKept {
			maps.DeleteFunc(s.slots, func(_ string, slots chan struct{}) bool { return len(slots) == 0 })
		}
		slots = make(chan struct{}, attachesAtATime)
		s.slots[owner] = slots
	}
	return slots
}

func (s *Sessions) yieldElsewhere(ctx context.Context, k key, a *attach) {
	peek, err := s.ask(ctx, a, &meshv1.AttachSessionRequest{User: k.user, Name: k.name, EdgeId: s.cfg.Edge, Peek: true})
	if err != nil || peek.GetPreviousEdge() == "" || peek.GetPreviousEdge() == s.cfg.Edge || a.givenUp.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, yieldPatience)
	defer cancel()
	if !s.cfg.Yield(ctx, peek.GetPreviousEdge(), k.user, k.name) {
		s.cfg.Log.Debug("the session's previous edge did not give it up in time", "edge", peek.GetPreviousEdge())
	}
}

// ask asks the store, and again where that can help, for as long as the connection is there.
func (s *Sessions) ask(ctx context.Context, a *attach, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	for n := 0; ; n++ {
		once, cancel := context.WithTimeout(ctx, attachTimeout)
		resp, err := s.cfg.Store.AttachSession(once, req)
		cancel()
		if !code.Retryable(code.Of(err)) || n == len(attachPauses) || a.givenUp.Load() || code.From(err).RetryAfter > attachTimeout {
			return resp, err
		}
		select {
		case <-time.After(attachPauses[n]):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Sessions) attached(one *session, a *attach, resp *meshv1.AttachSessionResponse, err error) {
	one.attaches = one.attaches[1:]
	switch {
	case err != nil && !a.givenUp.Load():
		s.cfg.Post(a.conn.Loop, exchange.Attached{Conn: a.conn, Err: code.From(err)})
	case err == nil:
		s.hold(one, a, resp)
	}
	if len(one.attaches) > 0 {
		s.begin(one)
		return
	}
	s.forget(one)
}

// hold makes a the holder; an older one that did not yield in time, here or elsewhere, has lost it.
// Two edges may both have found nobody to ask, and have been given the session one after the other:
// the store tells the second one of the first, which is told at once, maybe before its own answer.
func (s *Sessions) hold(one *session, a *attach, resp *meshv1.AttachSessionResponse) {
	if one.held {
		s.lost(one, errTakenOver)
	}
	if before := resp.GetPreviousEdge(); before != "" && before != s.cfg.Edge {
		s.notifyTakeover(before, one.key, resp.GetGeneration())
	}
	s.Attaches.Add(1)
	if resp.GetGeneration() < one.void {
		s.TakenOver.Add(1)
		s.cfg.Post(a.conn.Loop, exchange.Attached{Conn: a.conn, Err: one.why})
		return
	}
	s.Held.Add(1)
	one.held, one.conn, one.generation = true, a.conn, resp.GetGeneration()
	if a.givenUp.Load() {
		s.detach(one)
		return
	}
	s.cfg.Post(a.conn.Loop, exchange.Attached{
		Conn: a.conn, Generation: resp.GetGeneration(), Resumed: resp.GetResumed(),
		Cursors: byTopic(resp.GetCursors()), Filters: resp.GetFilters(),
	})
}

// overPauses lie between attempts to tell an edge that it has lost a session; each takes
// yieldPatience at most.
var overPauses = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// notifyTakeover tells the edge that held a session before that its hold is over.
func (s *Sessions) notifyTakeover(edge string, k key, generation uint64) {
	select {
	case s.tells <- struct{}{}:
	default:
		s.Untold.Add(1)
		return
	}
	s.group.Go("edge-sessions-over", func(ctx context.Context) {
		defer func() { <-s.tells }()
		for n := 0; ; n++ {
			once, cancel := context.WithTimeout(ctx, yieldPatience)
			told := s.cfg.Over(once, edge, k.user, k.name, generation)
			cancel()
			if told {
				return
			}
			if n == len(overPauses) {
				s.Untold.Add(1)
				return
			}
			select {
			case <-time.After(overPauses[n]):
			case <-ctx.Done():
				return
			}
		}
	})
}

// Over ends the hold of a session here, and those that attaches under way will end in, where their
// generation is older than this one: the store has given the session to another edge since, or
// (with NOT_FOUND) has deleted it. Nothing of them is written.
func (s *Sessions) Over(user, name string, generation uint64, why wirev1.Code) {
	s.ops.Do(func() {
		one := s.all[key{user, name}]
		if one == nil || generation <= one.void {
			return
		}
		one.void, one.why = generation, errTakenOver
		if why == wirev1.Code_CODE_NOT_FOUND {
			one.why = errDeleted
		}
		if one.held && one.generation < generation {
			s.lost(one, one.why)
			s.forget(one)
		}
	})
}

// byTopic is made here, and not on the loop: there may be very many.
func byTopic(all []*meshv1.SessionCursor) map[string]*meshv1.SessionCursor {
	if len(all) == 0 {
		return nil
	}
	cursors := make(map[string]*meshv1.SessionCursor, len(all))
	for _, c := range all {
		cursors[c.GetTopic()] = c
	}
	return cursors
}

// Hold makes conn the holder of a session that was attached otherwise, under a generation. Who held
// it here has lost it.
func (s *Sessions) Hold(conn exchange.Conn, user, name string, generation uint64) {
	s.ops.Do(func() {
		one := s.get(key{user, name})
		if one.held {
			s.lost(one, errTakenOver)
		}
		s.Attaches.Add(1)
		s.Held.Add(1)
		one.held, one.conn, one.generation = true, conn, generation
	})
}

// giveUp ends an attach whose connection is gone, whether it has been answered meanwhile or not.
func (s *Sessions) giveUp(one *session, conn exchange.Conn) {
	if one == nil {
		return
	}
	for _, a := range one.attaches {
		if a.conn == conn {
			a.givenUp.Store(true)
		}
	}
	if one.held && one.conn == conn {
		s.detach(one)
	}
}

// detach ends the hold of a connection that is gone.
func (s *Sessions) detach(one *session) {
	if one.pending == nil {
		one.pending = newPending(one.generation)
	}
	one.pending.detach = true
	one.due = time.Time{}
	s.schedule(one)
}

// owes says that something is being written, or could not be yet.
func (one *session) owes() bool { return one.writing || one.pending != nil && one.pending.tries > 0 }

// Yield asks the connection here that holds a session to give it up; true once it did, within ctx.
func (s *Sessions) Yield(ctx context.Context, user, name string) bool {
	var one *session
	var freed chan struct{}
	begun := make(chan struct{})
	s.ops.Do(func() {
		defer close(begun)
		if one = s.all[key{user, name}]; one == nil || !one.held {
			return
		}
		freed = s.awaitEnd(one)
		s.cfg.Post(one.conn.Loop, exchange.Yield{Conn: one.conn})
	})
	select {
	case <-begun:
	case <-ctx.Done():
		return false
	}
	if freed == nil {
		return false
	}
	select {
	case <-freed:
		return true
	case <-ctx.Done():
		s.ops.Do(func() { delete(one.freed, freed) })
		return false
	}
}

// Holder is the connection that holds a session here.
func (s *Sessions) Holder(ctx context.Context, user, name string) (conn exchange.Conn, held bool) {
	done := make(chan struct{})
	s.ops.Do(func() {
		defer close(done)
		if one := s.all[key{user, name}]; one != nil && one.held {
			conn, held = one.conn, true
		}
	})
	select {
	case <-done:
		return conn, held
	case <-ctx.Done():
		return exchange.Conn{}, false
	}
}
