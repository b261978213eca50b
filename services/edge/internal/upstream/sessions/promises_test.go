package sessions

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A session that was attached elsewhere in the process is held like any: it is found, yields, and
// is lost to the next.
func TestHeldUnderAnAttachOfAnother(t *testing.T) {
	in(t, func(b *bench) {
		holder := func() (uint32, bool) {
			c, held := b.Holder(b.t.Context(), "u", "s")
			return c.Slot, held
		}
		if _, held := holder(); held {
			t.Fatal("held by nobody")
		}
		b.Hold(conn(1), "u", "s", 7)
		if slot, held := holder(); !held || slot != 1 || b.Held.Load() != 1 || b.Attaches.Load() != 1 {
			t.Fatalf("held by %d, %v", slot, held)
		}
		b.Hold(conn(2), "u", "s", 8)
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
		if slot, held := holder(); !held || slot != 2 || b.Held.Load() != 1 || b.TakenOver.Load() != 1 || b.Attaches.Load() != 2 {
			t.Fatalf("held by %d, %v", slot, held)
		}
		b.Save(conn(2), 3, write(8, 5), true)
		b.expect(exchange.Saved{Conn: conn(2), Ref: 3})
		late, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		if b.Yield(late, "u", "s") { // its holder says nothing
			t.Error("yielded")
		}
		b.expect(exchange.Yield{Conn: conn(2)})
	})
}

// Attaches of one session go one after the other, and each is answered.
func TestAttachesOfASessionTakeTurns(t *testing.T) {
	in(t, func(b *bench) {
		b.Attach(conn(1), "u", "s", 0, 1, "")
		b.Attach(conn(2), "u", "s", 0, 2, "")
		b.expect(exchange.Attached{Conn: conn(1), Generation: 1})
		b.expect(exchange.Yield{Conn: conn(1)})
		last := write(1, 4)
		last.Detach = true
		b.Save(conn(1), 0, last, true)
		b.expect(exchange.Attached{Conn: conn(2), Generation: 2, Resumed: true})
		if b.Attaches.Load() != 2 || b.Held.Load() != 1 {
			t.Errorf("%d attaches, %d held", b.Attaches.Load(), b.Held.Load())
		}
	})
}

// asked counts the questions to the store, which has something else to say.
type asked struct {
	Store
	n      int
	answer func(n int) (*meshv1.AttachSessionResponse, error)
}

func (a *asked) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if req.GetPeek() {
		return &meshv1.AttachSessionResponse{}, nil
	}
	a.n++
	return a.answer(a.n)
}

// The store is asked again where that can help, for about two seconds, and once where it can't.
// What it tells of cursors and filters is handed on.
func TestTheStoreIsAskedAgainWhereThatHelps(t *testing.T) {
	for _, c := range []struct {
		why   wirev1.Code
		fails int
		tries int
		after time.Duration
	}{
		{wirev1.Code_CODE_INVALID_ARGUMENT, 9, 1, 0},
		{wirev1.Code_CODE_UNAVAILABLE, 9, 4, 1750 * time.Millisecond},
		{wirev1.Code_CODE_UNAVAILABLE, 2, 3, 750 * time.Millisecond},
		{wirev1.Code_CODE_OK, 0, 1, 0},
	} {
		in(t, func(b *bench) {
			a := &asked{Store: b, answer: func(n int) (*meshv1.AttachSessionResponse, error) {
				if n <= c.fails {
					return nil, code.New(c.why, "no")
				}
				return &meshv1.AttachSessionResponse{Generation: 3, Filters: []string{"f"}, Cursors: []*meshv1.SessionCursor{{Topic: "a", Floor: 1}, {Topic: "b", Floor: 2}}}, nil
			}}
			b.cfg.Store = a
			begin := time.Now()
			b.Attach(conn(1), "u", "s", 0, 1, "")
			e := (<-b.events).(exchange.Attached)
			if d := time.Since(begin); a.n != c.tries || d != c.after {
				t.Errorf("%v: asked %d times in %v", c.why, a.n, d)
			}
			if (e.Err != nil) != (c.fails == 9) || e.Err == nil && (e.Generation != 3 || len(e.Filters) != 1 || len(e.Cursors) != 2 || e.Cursors["b"].GetFloor() != 2) {
				t.Errorf("%v: %+v", c.why, e)
			}
			synctest.Wait()
			if kept := b.kept(); kept != int(b.Held.Load()) {
				t.Errorf("%v: %d sessions are kept", c.why, kept)
			}
		})
	}
}

// A connection that is gone gives up its own hold, and nobody else's.
func TestOnlyTheHolderGivesUp(t *testing.T) {
	in(t, func(b *bench) {
		b.attach(1)
		end := func() *meshv1.SessionWrite { return &meshv1.SessionWrite{User: "u", Name: "s", Detach: true} }
		b.Save(conn(2), 0, end(), true)
		b.Save(conn(3), 0, &meshv1.SessionWrite{User: "u", Name: "none", Detach: true}, true)
		pass(time.Second)
		if b.Held.Load() != 1 || len(b.written()) != 0 {
			t.Fatalf("%d held, %d writes", b.Held.Load(), len(b.written()))
		}
		b.Save(conn(1), 0, end(), true) // the answer and the end crossed
		pass(time.Second)
		if w := b.written(); b.Held.Load() != 0 || len(w) != 1 || !w[0].GetDetach() || b.kept() != 0 {
			t.Fatalf("%d held, %v", b.Held.Load(), w)
		}
	})
}

// Flush has everything written at once that waits, and returns when it is stored, or its time is
// over.
func TestFlushWaitsForTheStore(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		if err := b.Flush(b.t.Context()); err != nil {
			t.Fatal(err)
		}
		b.writeTime = 300 * time.Millisecond
		b.Save(conn(1), 0, write(g, 1), false)
		begin := time.Now()
		if err := b.Flush(b.t.Context()); err != nil || len(b.written()) != 1 {
			t.Errorf("%v, %d writes", err, len(b.written()))
		}
		if d := time.Since(begin); d > 400*time.Millisecond {
			t.Errorf("after %v", d)
		}
		b.set(func() { b.away = true })
		b.Save(conn(1), 0, write(g, 2), false)
		late, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
		defer cancel()
		if err := b.Flush(late); err == nil || b.Failed.Load() == 0 || b.Written.Load() != 1 {
			t.Errorf("%v, %d failed, %d written", err, b.Failed.Load(), b.Written.Load())
		}
		b.set(func() { b.away = false })
		pass(2 * longestPause)
		if w := b.written(); len(w) != 2 || w[1].GetCursors()[0].GetFloor() != 2 {
			t.Errorf("%v", w)
		}
	})
}

// A busy session whose writes grow beyond the bound is written at once, not cut off; a store that
// answers of fewer writes than it got is asked again.
func TestABusySessionIsWrittenAtOnce(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		large := write(g, 1)
		large.DeadLetters = []*meshv1.DeadLetter{{Body: make([]byte, maxPending)}}
		begin := time.Now()
		b.Save(conn(1), 5, large, false)
		b.expect(exchange.Saved{Conn: conn(1), Ref: 5})
		if d := time.Since(begin); d > 2*scanEvery || b.Overflowed.Load() != 0 {
			t.Errorf("after %v, %d dropped", d, b.Overflowed.Load())
		}
		b.cfg.Store = &terse{Store: b}
		b.Save(conn(1), 6, write(g, 2), true)
		b.expect(exchange.Saved{Conn: conn(1), Ref: 6})
		if b.Failed.Load() != 1 {
			t.Errorf("%d failed", b.Failed.Load())
		}
		b.Save(conn(1), 0, write(g-1, 3), false) // of a hold that is over
		b.expect(exchange.Detached{Conn: conn(1)})
		if b.Stale.Load() != 1 {
			t.Errorf("%d stale", b.Stale.Load())
		}
	})
}

// terse answers the first request without a code.
type terse struct {
	Store
	asked bool
}

func (s *terse) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	if !s.asked {
		s.asked = true
		return &meshv1.WriteCursorsResponse{}, nil
	}
	return s.Store.WriteCursors(ctx, req)
}
