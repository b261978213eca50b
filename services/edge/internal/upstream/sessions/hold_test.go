package sessions

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// do runs f in the goroutine that owns everything, and waits for it.
func (b *bench) do(f func()) {
	done := make(chan struct{})
	b.ops.Do(func() {
		defer close(done)
		f()
	})
	<-done
}

// check looks at everything that must be true of sessions between two calls.
func (b *bench) check() {
	b.t.Helper()
	synctest.Wait()
	b.do(func() {
		held := int64(0)
		for k, one := range b.all {
			if one.held {
				held++
			}
			switch {
			case one.key != k:
				b.t.Errorf("%v stands under %v", one.key, k)
			case !one.held && len(one.attaches) == 0 && !one.writing:
				b.t.Errorf("%v is kept, and nothing is left to do about it", k)
			case !one.held && (one.pending != nil || one.cut || len(one.freed) > 0):
				b.t.Errorf("%v is not held, and has something to write or somebody who waits", k)
			case b.dirty[one] != (one.pending != nil):
				b.t.Errorf("%v has something to write: %v, and is among those that have: %v", k, one.pending != nil, b.dirty[one])
			case one.pending != nil && !one.writing && one.in == nil:
				b.t.Errorf("%v has something to write, and is not in line for it", k)
			case one.cut && one.pending == nil && !one.writing:
				b.t.Errorf("%v has lost its connection, and nothing ends its hold", k)
			case one.pending != nil && one.pending.generation != one.generation:
				b.t.Errorf("%v has generation %d, and %d to write", k, one.generation, one.pending.generation)
			}
		}
		for one := range b.dirty {
			if b.all[one.key] != one {
				b.t.Errorf("%v is forgotten and has something to write", one.key)
			}
		}
		if b.Held.Load() != held {
			b.t.Errorf("%d are counted as held, %d are", b.Held.Load(), held)
		}
	})
}

func detach(generation, floor uint64) *meshv1.SessionWrite {
	w := write(generation, floor)
	w.Detach = true
	return w
}

// Who has taken a session over may save, its predecessors may not, and the one after it takes it
// over likewise. Where all are of one edge no other is told.
func TestASessionGoesFromHandToHand(t *testing.T) {
	in(t, func(b *bench) {
		b.attach(1)
		for g := uint64(2); g <= 5; g++ {
			before, now, begin := conn(uint32(g-1)), conn(uint32(g)), time.Now()
			b.Attach(now, "u", "s", 0, g, "")
			b.expect(exchange.Yield{Conn: before})
			b.raising = func() { // it has yielded, and its last words come late
				b.raising = nil
				b.Save(before, 8, write(g-1, 77), true)
				synctest.Wait()
			}
			b.Save(before, 0, detach(g-1, g), true)
			b.expect(exchange.Detached{Conn: before})
			b.expect(exchange.Saved{Conn: before, Ref: 8, Err: errTakenOver})
			b.expect(exchange.Attached{Conn: now, Generation: g, Resumed: true})
			if d := time.Since(begin); d >= yieldPatience {
				t.Errorf("who yielded at once was waited for: %v", d)
			}
			b.check()
			b.Save(now, 9, write(g, g), true)
			b.expect(exchange.Saved{Conn: now, Ref: 9})
			b.check()
		}
		for _, w := range b.written() {
			if w.GetCursors()[0].GetFloor() == 77 {
				t.Error("the last words of who had yielded were written")
			}
		}
		b.set(func() {
			if len(b.over)+len(b.yielded) != 0 {
				t.Errorf("told %v, asked %v", b.over, b.yielded)
			}
		})
		if b.Stale.Load() != 4 || b.TakenOver.Load() != 0 || b.Attaches.Load() != 5 {
			t.Errorf("%d stale, %d taken over, %d attaches", b.Stale.Load(), b.TakenOver.Load(), b.Attaches.Load())
		}
	})
}

// A session that nobody holds yet has no holder, and nobody to ask to yield.
func TestASessionThatIsBeingAttachedHasNoHolder(t *testing.T) {
	in(t, func(b *bench) {
		b.raising = func() {
			b.raising = nil
			if c, held := b.Holder(b.t.Context(), "u", "s"); held {
				t.Errorf("held by %v", c)
			}
			begin := time.Now()
			if b.Yield(b.t.Context(), "u", "s") || time.Since(begin) != 0 {
				t.Error("somebody was asked to yield")
			}
		}
		b.attach(1)
		b.check()
		stuck := make(chan struct{})
		b.ops.Do(func() { <-stuck })
		late, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		if c, held := b.Holder(late, "u", "s"); held || c != (exchange.Conn{}) {
			t.Errorf("held by %v, as far as is known in time", c)
		}
		close(stuck)
	})
}

// What the store says to a write of an older hold is nothing to who has the session now.
func TestAnAnswerToAnOlderHoldLeavesTheNewOne(t *testing.T) {
	for _, c := range []wirev1.Code{wirev1.Code_CODE_SESSION_TAKEN_OVER, wirev1.Code_CODE_NOT_FOUND, wirev1.Code_CODE_OK, wirev1.Code_CODE_INVALID_ARGUMENT, wirev1.Code_CODE_UNAVAILABLE} {
		t.Run(code.Name(c), func(t *testing.T) {
			in(t, func(b *bench) {
				b.writeTime = time.Second
				b.Hold(conn(1), "u", "s", 7)
				b.set(func() { b.refuse = c })
				b.Save(conn(1), 3, detach(7, 5), true)
				pass(100 * time.Millisecond) // it is under way
				b.Hold(conn(2), "u", "s", 8)
				b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
				if saved := (<-b.events).(exchange.Saved); saved.Conn != conn(1) || (saved.Err == nil) != (c == wirev1.Code_CODE_OK) {
					t.Errorf("%+v", saved)
				}
				b.set(func() { b.refuse = wirev1.Code_CODE_OK })
				b.check()
				b.Save(conn(2), 4, write(8, 6), true)
				b.expect(exchange.Saved{Conn: conn(2), Ref: 4})
				if n := len(b.written()); b.Held.Load() != 1 || n != 2 || len(b.events) != 0 {
					t.Errorf("%d held, %d writes, %d events", b.Held.Load(), n, len(b.events))
				}
			})
		})
	}
}

// A write that met another one is tried again, and costs nobody the session.
func TestAConflictIsTriedAgain(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.set(func() { b.refuse = wirev1.Code_CODE_CONFLICT })
		b.Save(conn(1), 1, write(g, 5), true)
		pass(100 * time.Millisecond)
		b.check()
		b.set(func() { b.refuse = wirev1.Code_CODE_OK })
		b.expect(exchange.Saved{Conn: conn(1), Ref: 1})
		if w := b.written(); len(w) != 2 || w[1].GetCursors()[0].GetFloor() != 5 || b.Held.Load() != 1 || b.Failed.Load() != 1 {
			t.Errorf("%v, %d held, %d failed", w, b.Held.Load(), b.Failed.Load())
		}
	})
}

// slow is a store whose answers to writes and attaches are let go by the test, and which knows how
// many are under way.
type slow struct {
	Store
	*bench
	let     chan struct{}
	at, max int
	times   []time.Duration
	sizes   []int
	begin   time.Time
}

func (s *slow) enter() {
	s.locked(func() {
		s.at++
		s.max = max(s.max, s.at)
		s.times = append(s.times, time.Since(s.begin))
	})
	<-s.let
	s.locked(func() { s.at-- })
}

func (s *slow) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if req.GetUser() == "slow" {
		s.enter()
	}
	return s.bench.AttachSession(ctx, req)
}

func (s *slow) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	s.locked(func() { s.sizes = append(s.sizes, len(req.GetWrites())) })
	if req.GetWrites()[0].GetUser() == "slow" {
		s.enter()
	}
	return s.bench.WriteCursors(ctx, req)
}

func slowStore(b *bench) *slow {
	s := &slow{Store: b, bench: b, let: make(chan struct{}), begin: time.Now()}
	b.cfg.Store = s
	b.cfg.Owner = func(user, _ string) string { return user }
	return s
}

// An owner that doesn't answer has 64 attaches and 4 writes of an edge at once, the others of its
// own wait, and those of other owners don't.
func TestASlowOwnerHoldsUpItsOwn(t *testing.T) {
	in(t, func(b *bench) {
		s := slowStore(b)
		for i := range uint32(attachesAtATime + 10) {
			b.Attach(conn(i), "slow", fmt.Sprint(i), 0, uint64(i), "")
		}
		for i := range uint32(ownersKept + 20) {
			// more owners than are kept: the busy one is not forgotten
			user := fmt.Sprint("quick", i)
			b.Attach(conn(1000), user, "s", 0, uint64(i), "")
			if e := (<-b.events).(exchange.Attached); e.Err != nil || e.Conn != conn(1000) {
				t.Fatalf("%+v", e)
			}
			synctest.Wait()
			b.do(func() {
				if len(b.slots) > ownersKept {
					t.Fatalf("slots of %d owners are kept", len(b.slots))
				}
			})
		}
		b.Attach(conn(999), "slow", "more", 0, 1, "")
		synctest.Wait()
		if s.at != attachesAtATime || len(b.events) != 0 {
			t.Errorf("%d attaches at once, %d were answered", s.at, len(b.events))
		}
		generations := map[uint32]uint64{}
		for len(generations) < attachesAtATime+11 {
			select {
			case s.let <- struct{}{}:
			case e := <-b.events:
				generations[e.(exchange.Attached).Conn.Slot] = e.(exchange.Attached).Generation
			}
		}
		s.max = 0
		for i := range uint32(10) { // each by itself, so that none shares a request
			w := write(generations[i], 1)
			w.User, w.Name = "slow", fmt.Sprint(i)
			b.Save(conn(i), i+1, w, true)
			synctest.Wait()
		}
		b.check()
		quick := write(0, 1)
		quick.User = "quick3"
		b.do(func() { quick.Generation = b.all[key{"quick3", "s"}].generation })
		b.Save(conn(1000), 99, quick, true)
		b.expect(exchange.Saved{Conn: conn(1000), Ref: 99})
		if synctest.Wait(); s.max != writesAtATime || len(b.events) != 0 {
			t.Errorf("%d writes at once, %d were answered", s.max, len(b.events))
		}
		for range 10 {
			select {
			case s.let <- struct{}{}:
			case <-time.After(time.Second):
				// fewer requests than sessions: those that waited share one
			}
		}
		synctest.Wait()
		for n := range 10 {
			if e := (<-b.events).(exchange.Saved); e.Err != nil {
				t.Fatalf("%d: %+v", n, e)
			}
		}
		if s.max != writesAtATime || len(b.writes) > 1+2*writesAtATime {
			t.Errorf("%d writes at once, %d requests", s.max, len(b.writes))
		}
		b.check()
	})
}

// A request to the store is bounded in bytes as well as in sessions.
func TestAWriteIsBoundedInBytes(t *testing.T) {
	in(t, func(b *bench) {
		s := slowStore(b)
		b.cfg.Owner = func(string, string) string { return "" }
		b.do(func() { // all are due together
			for i := range uint32(4) {
				name := fmt.Sprint(i)
				one := b.get(key{"u", name})
				one.held, one.conn, one.generation = true, conn(i), 1
				b.Held.Add(1)
				w := write(1, 1)
				w.Name, w.DeadLetters = name, []*meshv1.DeadLetter{{Body: make([]byte, bytesInABatch*6/10)}}
				b.save(conn(i), 0, w, true)
			}
		})
		b.check()
		s.locked(func() {
			if fmt.Sprint(s.sizes) != "[2 2]" {
				t.Errorf("requests with %v sessions", s.sizes)
			}
		})
	})
}

// A store that is away is asked after 250 ms, then half as often each time, every second at last;
// who waits for an answer is told after the fourth.
func TestAStoreThatIsAwayIsAskedLessAndLess(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		s := slowStore(b)
		close(s.let)
		b.cfg.Owner = func(string, string) string { return "slow" }
		var asked []time.Duration
		b.cfg.Store = storeFunc{b, func() { b.set(func() { asked = append(asked, time.Since(s.begin)) }) }}
		b.set(func() { b.away = true })
		b.Save(conn(1), 1, write(g, 5), true)
		told := (<-b.events).(exchange.Saved)
		times := func() (all []time.Duration) {
			b.set(func() { all = slices.Clone(asked) })
			return all
		}
		if d, asked := time.Since(s.begin), times(); code.Of(told.Err) != wirev1.Code_CODE_UNAVAILABLE || len(asked) != triesOfRefs || d != asked[triesOfRefs-1] {
			t.Errorf("%+v after %v and %d writes", told, d, len(asked))
		}
		pass(20 * time.Second)
		came := times()
		for i, ms := range []int{250, 500, 1000, 1000, 1000, 1000, 1000} {
			pause := time.Duration(ms) * time.Millisecond
			if got := came[i+1] - came[i]; got < pause || got > pause+2*scanEvery {
				t.Errorf("write %d came after %v, want %v", i+1, got, pause)
			}
		}
		b.set(func() { b.away = false })
	})
}

type storeFunc struct {
	Store
	writes func()
}

func (s storeFunc) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	s.writes()
	return s.Store.WriteCursors(ctx, req)
}

// What came while a write was under way that failed counts with it: together they are bounded, at
// once.
func TestWhatFailedCountsWithWhatCameSince(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.writeTime = time.Second
		b.set(func() { b.away = true })
		large := func(floor uint64) *meshv1.SessionWrite {
			w := write(g, floor)
			w.DeadLetters = []*meshv1.DeadLetter{{Body: make([]byte, maxPending*6/10)}}
			return w
		}
		b.Save(conn(1), 1, large(1), true)
		pass(500 * time.Millisecond)
		b.Save(conn(1), 2, large(2), true)
		begin := time.Now()
		for ref := range uint32(2) {
			if e := (<-b.events).(exchange.Saved); e.Ref != ref+1 || code.Of(e.Err) != wirev1.Code_CODE_OVERLOADED {
				t.Errorf("%+v", e)
			}
		}
		if e := (<-b.events).(exchange.Detached); code.Of(e.Err) != wirev1.Code_CODE_OVERLOADED || time.Since(begin) != 500*time.Millisecond {
			t.Errorf("%+v after %v", e, time.Since(begin))
		}
		b.check()
		b.set(func() { b.away = false })
		pass(2 * longestPause)
		if b.check(); b.Held.Load() != 0 || b.Overflowed.Load() != 1 || b.kept() != 0 {
			t.Errorf("%d held, %d dropped", b.Held.Load(), b.Overflowed.Load())
		}
	})
}

// Beyond the bound of attaches that wait the next is refused, with a time to come back.
func TestAttachesThatWaitAreBounded(t *testing.T) {
	in(t, func(b *bench) {
		stuck := make(chan struct{})
		b.ops.Do(func() { <-stuck })
		synctest.Wait()
		for range attachesWaiting {
			b.ops.Do(func() {})
		}
		b.Attach(conn(1), "u", "s", 0, 1, "")
		if e := (<-b.events).(exchange.Attached); e.Conn != conn(1) || code.Of(e.Err) != wirev1.Code_CODE_OVERLOADED || code.From(e.Err).RetryAfter == 0 {
			t.Errorf("%+v", e)
		}
		close(stuck)
		synctest.Wait()
		b.attach(2)
	})
}

// An edge whose sessions owe nothing sleeps.
func TestSessionsThatOweNothingCostNothing(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.Save(conn(1), 1, write(g, 1), true)
		b.expect(exchange.Saved{Conn: conn(1), Ref: 1})
		pass(time.Second)
		turns := 0
		b.do(func() {
			var turn func()
			turn = func() { // called in each turn that has nothing to write, until none is left
				turns++
				b.flushed = append(b.flushed, turn)
			}
			turn()
		})
		pass(time.Minute)
		b.do(func() { b.flushed = nil })
		if turns > 4 {
			t.Errorf("%d turns in an idle minute", turns)
		}
	})
}

// Where very many edges are to be told that they lost a session the next one is not: it learns it
// when it writes.
func TestEdgesToBeToldAreBounded(t *testing.T) {
	in(t, func(b *bench) {
		for range tellsAtATime {
			b.tells <- struct{}{}
		}
		b.set(func() { b.holder, b.generation = "e2", 4 })
		if g := b.attach(1); g != 5 || b.Untold.Load() != 1 {
			t.Errorf("generation %d, %d untold", g, b.Untold.Load())
		}
		pass(time.Minute)
		b.set(func() {
			if len(b.over) != 0 {
				t.Errorf("told %v", b.over)
			}
		})
	})
}
