package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
)

// Bounds of writing.
const (
	writesAtATime  = 4 // of one owner
	writesInABatch = 256
	bytesInABatch  = 1 << 20
	writeTimeout   = 5 * time.Second
	firstPause     = 250 * time.Millisecond
	// usualPause bounds the pause between tries of one session's write: so long, and the time of a
	// write, a store must answer in one piece to have all that waits. Where very many sessions
	// wait, triesASecond bounds all of theirs, and longestPause the pause.
	usualPause   = time.Second
	triesASecond = 25_000
	longestPause = 4 * time.Second
	// triesOfRefs is how often a write is tried before those who wait for it are told of the
	// trouble. It is tried on after that.
	triesOfRefs = 4
)

// unit is one session's write under way.
type unit struct {
	of *session
	p  *pending
}

// batch is units of one owner's sessions.
type batch struct {
	owner string
	units []unit
	size  int
}

func (b *batch) full() bool { return len(b.units) == writesInABatch || b.size >= bytesInABatch }

// flushedOfStep is how many sessions one step of a flush looks at: a quarter of a millisecond.
const flushedOfStep = 512

// Of those that wait for an owner, so many are looked at now and then, whether they are another's
// by now; where some are, the next ones at once.
const (
	lookEvery = scanEvery
	lookMost  = writesInABatch
)

// schedule has what a session has to write be written when it is due.
func (s *Sessions) schedule(one *session) {
	s.dirty[one] = true
	s.line.put(one)
}

// flush begins to write some of what is due, and reports whether there may be more. Between two
// steps of it anything may happen: a session that was lost, or is being written, is passed over,
// and one whose hold began anew is written under that.
func (s *Sessions) flush(now time.Time) (more bool) {
	moves := s.look(now)
	var open map[string]*batch // by owner
	n := 0
	for ; n < flushedOfStep; n++ {
		one := s.line.next(now)
		if one == nil {
			break
		}
		if one.writing || !s.dirty[one] { // who is being written is lined up again after that
			continue
		}
		owner := s.cfg.Owner(one.user, one.name)
		b := open[owner]
		switch {
		case b != nil:
		case s.writes[owner] >= writesAtATime:
			s.line.wait(owner, one)
			continue
		default:
			if b = (&batch{owner: owner}); open == nil {
				open = map[string]*batch{}
			}
			open[owner] = b
		}
		b.units = append(b.units, unit{one, one.pending})
		b.size += one.pending.size
		one.pending, one.writing = nil, true
		delete(s.dirty, one)
		if b.full() {
			s.begun(b)
			delete(open, owner)
		}
	}
	for _, b := range open {
		s.begun(b)
	}
	if len(s.dirty) == 0 && len(s.writes) == 0 {
		flushed := s.flushed
		s.flushed = nil
		for _, f := range flushed {
			f()
		}
	}
	return n == flushedOfStep || moves
}

// look has sessions go on whose owner took no more, where they are another's by now, or nothing is
// under way whose end would have them go on. While some do, it looks at once at those behind them,
// and reports whether there are such.
func (s *Sessions) look(now time.Time) (more bool) {
	if len(s.line.behind) == 0 {
		return false
	}
	due := now.Sub(s.line.looked) >= lookEvery
	if due {
		s.line.looked = now
	}
	for owner, q := range s.line.behind {
		if !due && !q.moves {
			continue
		}
		q.moves = s.line.look(owner, lookMost, func(one *session) bool {
			return s.writes[owner] == 0 || s.cfg.Owner(one.user, one.name) != owner
		}) && q.Len() > 0
		more = more || q.moves
	}
	return more
}

func (s *Sessions) begun(b *batch) {
	s.writes[b.owner]++
	s.group.Go("edge-sessions-write", func(ctx context.Context) {
		// Here, because there may be much of it: what a unit holds is nobody else's until the
		// store has answered.
		req := &meshv1.WriteCursorsRequest{}
		for _, u := range b.units {
			req.Writes = append(req.Writes, u.p.write(u.of.user, u.of.name))
		}
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		resp, err := s.cfg.Store.WriteCursors(ctx, req)
		if err == nil && len(resp.GetCodes()) != len(b.units) {
			err = code.New(wirev1.Code_CODE_INTERNAL, fmt.Sprintf("%d answers to %d writes", len(resp.GetCodes()), len(b.units)))
		}
		s.ops.Do(func() {
			if s.writes[b.owner]--; s.writes[b.owner] == 0 {
				delete(s.writes, b.owner)
			}
			s.line.goOn(b.owner)
			for i, u := range b.units {
				if err != nil {
					s.written(u, code.Of(err))
				} else {
					s.written(u, resp.GetCodes()[i])
				}
			}
		})
	})
}

func (s *Sessions) written(u unit, c wirev1.Code) {
	one := u.of
	one.writing = false
	if s.dirty[one] {
		s.line.put(one)
	}
	current := one.held && one.generation == u.p.generation
	switch {
	case c == wirev1.Code_CODE_OK:
		s.Written.Add(1)
		s.answer(u.p.refs, nil)
		if u.p.detach && current {
			s.discard(one, errTakenOver)
			s.end(one)
		}
	case c == wirev1.Code_CODE_SESSION_TAKEN_OVER, c == wirev1.Code_CODE_NOT_FOUND, !current:
		s.Stale.Add(1)
		why := errTakenOver
		if c == wirev1.Code_CODE_NOT_FOUND {
			why = errDeleted
		}
		s.answer(u.p.refs, why)
		if current {
			s.lost(one, why)
		}
	case !code.Retryable(c) && c != wirev1.Code_CODE_CONFLICT && !u.p.bare():
		s.Rejected.Add(1)
		s.cfg.Log.Error("cursors refused by the store", "code", code.Name(c))
		if one.pending != nil {
			u.p.refs = append(u.p.refs, one.pending.refs...)
		}
		one.pending = u.p
		s.cutOff(one, code.New(c, "the store refused the session's positions"))
	default:
		s.again(u, c)
	}
	s.forget(one)
}

// again keeps a write that failed under what came since, and tries later.
func (s *Sessions) again(u unit, c wirev1.Code) {
	s.Failed.Add(1)
	one := u.of
	u.p.tries++
	if u.p.tries >= triesOfRefs {
		s.answer(u.p.refs, code.Retry(c, time.Second, "the store is away"))
		u.p.refs = nil
	}
	if one.pending != nil {
		one.pending.before(u.p)
	} else {
		one.pending = u.p
	}
	one.due = time.Now().Add(s.pause(one))
	s.bound(one)
	s.schedule(one)
}

// pause before the next try.
func (s *Sessions) pause(one *session) time.Duration {
	if len(one.freed) > 0 || len(s.flushed) > 0 { // it is waited for
		return firstPause
	}
	most := max(usualPause, min(time.Second*time.Duration(len(s.dirty))/triesASecond, longestPause))
	return min(firstPause<<min(one.pending.tries-1, 8), most)
}

// Flush writes everything that waits now, and returns once it is stored or ctx ends.
func (s *Sessions) Flush(ctx context.Context) error {
	done := make(chan struct{})
	s.ops.Do(func() {
		s.line.allNow()
		s.flushed = append(s.flushed, func() { close(done) })
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cursors not written: %w", ctx.Err())
	}
}
