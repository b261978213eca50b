package sessions

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// bench runs Sessions in a bubble of fake time, with a store that answers as told.
type bench struct {
	full    error    // no session is created
	origins []string // of sessions that were not
	*Sessions
	t          *testing.T
	events     chan exchange.Event
	generation uint64
	holder     string
	away       bool
	writes     []*meshv1.WriteCursorsRequest
	refuse     wirev1.Code
	yielded    []string
	lock       chan struct{}
	raising    func() // nil: nothing; done before a session is raised
	over       []string
	writeTime  time.Duration // that a write takes
	// so many times other edges can't be told that they have lost a session
	deaf int
}

// in runs a test with a started bench.
func in(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, events: make(chan exchange.Event, 1000), lock: make(chan struct{}, 1)}
		b.Sessions = New(Config{
			Edge: "e1", Store: b, Log: slog.New(slog.DiscardHandler),
			Post: func(_ uint16, e exchange.Event) { b.events <- e },
			Yield: func(_ context.Context, edge, user, name string) bool {
				b.locked(func() { b.yielded = append(b.yielded, edge+" "+user+" "+name) })
				return true
			},
			Over: func(_ context.Context, edge, user, name string, generation uint64) (told bool) {
				b.locked(func() {
					b.deaf--
					if told = b.deaf < 0; told {
						b.over = append(b.over, fmt.Sprint(edge, " ", user, " ", name, " ", generation))
					}
				})
				return told
			},
		})
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		f(b)
	})
}

func (b *bench) locked(f func()) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	f()
}

func (b *bench) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (resp *meshv1.AttachSessionResponse, err error) {
	if b.raising != nil && !req.GetPeek() {
		b.raising()
	}
	b.locked(func() {
		switch {
		case b.away:
			err = code.New(wirev1.Code_CODE_UNAVAILABLE, "away")
		case b.full != nil && !req.GetPeek():
			b.origins = append(b.origins, req.GetOrigin())
			err = b.full
		case req.GetPeek():
			resp = &meshv1.AttachSessionResponse{PreviousEdge: b.holder}
		default:
			b.generation++
			resp = &meshv1.AttachSessionResponse{Generation: b.generation, Resumed: b.generation > 1, PreviousEdge: b.holder}
			b.holder = req.GetEdgeId()
		}
	})
	return resp, err
}

func (b *bench) WriteCursors(_ context.Context, req *meshv1.WriteCursorsRequest) (resp *meshv1.WriteCursorsResponse, err error) {
	var takes time.Duration
	b.locked(func() { takes = b.writeTime })
	pass(takes)
	b.locked(func() {
		if b.away {
			err = code.New(wirev1.Code_CODE_UNAVAILABLE, "away")
			return
		}
		b.writes = append(b.writes, req)
		resp = &meshv1.WriteCursorsResponse{}
		for range req.GetWrites() {
			resp.Codes = append(resp.Codes, b.refuse)
		}
	})
	return resp, err
}

func (b *bench) set(f func()) { b.locked(f) }

// kept is how many sessions there is something to do about.
func (b *bench) kept() (n int) {
	done := make(chan struct{})
	b.ops.Do(func() {
		n = len(b.all)
		close(done)
	})
	<-done
	return n
}

func (b *bench) written() (out []*meshv1.SessionWrite) {
	b.locked(func() {
		for _, req := range b.writes {
			out = append(out, req.GetWrites()...)
		}
	})
	return out
}

func conn(slot uint32) exchange.Conn { return exchange.Conn{Slot: slot, Gen: 1} }

// expect waits for the next event, which must be want.
func (b *bench) expect(want exchange.Event) {
	b.t.Helper()
	got := <-b.events
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		b.t.Fatalf("got %#v, want %#v", got, want)
	}
}

func (b *bench) attach(slot uint32) uint64 {
	b.t.Helper()
	b.Attach(conn(slot), "u", "s", 0, uint64(slot), "")
	a, ok := (<-b.events).(exchange.Attached)
	if !ok || a.Err != nil || a.Conn != conn(slot) {
		b.t.Fatalf("%+v", a)
	}
	return a.Generation
}

func write(generation uint64, floor uint64) *meshv1.SessionWrite {
	return &meshv1.SessionWrite{User: "u", Name: "s", Generation: generation, Cursors: []*meshv1.SessionCursor{{Topic: "t", Floor: floor}}}
}

func TestSavesAreMergedForASecond(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		for floor := range uint64(50) {
			b.Save(conn(1), 0, write(g, floor), false)
		}
		pass(900 * time.Millisecond)
		if n := len(b.written()); n != 0 {
			t.Errorf("%d writes early", n)
		}
		pass(200 * time.Millisecond)
		if w := b.written(); len(w) != 1 || w[0].GetCursors()[0].GetFloor() != 49 {
			t.Errorf("%v", w)
		}
		b.Save(conn(1), 7, write(g, 60), true)
		b.expect(exchange.Saved{Conn: conn(1), Ref: 7})
		if w := b.written(); len(w) != 2 {
			t.Errorf("%v", w)
		}
	})
}

func TestOlderHolderOnTheSameEdgeYields(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.Save(conn(1), 0, write(g, 5), false)
		b.Attach(conn(2), "u", "s", 0, 2, "")
		b.expect(exchange.Yield{Conn: conn(1)})
		last := write(g, 6)
		last.Detach = true
		b.Save(conn(1), 0, last, true)
		b.expect(exchange.Attached{Conn: conn(2), Generation: 2, Resumed: true})
		if w := b.written(); len(w) != 1 || !w[0].GetDetach() || w[0].GetCursors()[0].GetFloor() != 6 {
			t.Errorf("%v", w)
		}
		b.Save(conn(1), 3, write(g, 9), true)
		b.expect(exchange.Detached{Conn: conn(1)})
		b.expect(exchange.Saved{Conn: conn(1), Ref: 3, Err: errTakenOver})
		if len(b.yielded) != 0 {
			t.Errorf("asked elsewhere: %v", b.yielded)
		}
	})
}

func TestHolderThatDoesNotYieldLosesTheSession(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		begin := time.Now()
		b.Attach(conn(2), "u", "s", 0, 2, "")
		b.expect(exchange.Yield{Conn: conn(1)})
		b.Save(conn(1), 4, write(g, 5), false)
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
		b.expect(exchange.Saved{Conn: conn(1), Ref: 4, Err: errTakenOver})
		b.expect(exchange.Attached{Conn: conn(2), Generation: 2, Resumed: true})
		if d := time.Since(begin); d != yieldPatience {
			t.Errorf("after %v", d)
		}
		if w := b.written(); len(w) != 0 {
			t.Errorf("%v was written", w)
		}
	})
}

// Who left before the store was asked leaves the session with its holder.
func TestAnAttachThatWasGivenUpTakesNothing(t *testing.T) {
	in(t, func(b *bench) {
		b.set(func() { b.holder, b.generation = "e2", 4 })
		b.lock <- struct{}{} // the first question to the store is not answered
		b.Attach(conn(1), "u", "s", 0, 1, "")
		b.Save(conn(1), 0, &meshv1.SessionWrite{User: "u", Name: "s", Detach: true}, true)
		synctest.Wait()
		<-b.lock
		pass(time.Minute)
		b.set(func() {
			if b.generation != 4 || b.holder != "e2" || len(b.yielded) != 0 {
				t.Errorf("generation %d of %s, asked to yield: %v", b.generation, b.holder, b.yielded)
			}
		})
		if g := b.attach(2); g != 5 {
			t.Errorf("the next attach has generation %d", g)
		}
	})
}

func TestHolderElsewhereIsAsked(t *testing.T) {
	in(t, func(b *bench) {
		b.set(func() { b.holder, b.generation = "e2", 4 })
		if g := b.attach(1); g != 5 || !slices.Equal(b.yielded, []string{"e2 u s"}) {
			t.Errorf("generation %d, asked %v", g, b.yielded)
		}
	})
}

func TestYieldForAnotherEdge(t *testing.T) {
	in(t, func(b *bench) {
		if b.Yield(b.t.Context(), "u", "s") {
			t.Error("yielded what is not held")
		}
		g := b.attach(1)
		answer := make(chan bool)
		go func() { answer <- b.Yield(b.t.Context(), "u", "s") }()
		b.expect(exchange.Yield{Conn: conn(1)})
		last := write(g, 6)
		last.Detach = true
		b.Save(conn(1), 0, last, true)
		if !<-answer || len(b.written()) != 1 {
			t.Error("answered before the last cursors were stored")
		}
		synctest.Wait()
		if b.Held.Load() != 0 {
			t.Error("still held")
		}
	})
}

func TestStaleGenerationDetaches(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.set(func() { b.refuse = wirev1.Code_CODE_SESSION_TAKEN_OVER })
		b.Save(conn(1), 2, write(g, 5), true)
		b.expect(exchange.Saved{Conn: conn(1), Ref: 2, Err: errTakenOver})
		b.expect(exchange.Detached{Conn: conn(1), Err: errTakenOver})
	})
}

func TestStoreAwayKeepsCursorsAndTellsThoseWhoWait(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.set(func() { b.away = true })
		b.Save(conn(1), 1, write(g, 5), true)
		saved := (<-b.events).(exchange.Saved)
		if code.Of(saved.Err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("%+v", saved)
		}
		b.Save(conn(1), 2, write(g, 8), true)
		if again := (<-b.events).(exchange.Saved); again.Ref != 2 || code.Of(again.Err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("%+v", again)
		}
		b.Attach(conn(2), "other", "s", 0, 2, "")
		if a := (<-b.events).(exchange.Attached); code.Of(a.Err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("%+v", a)
		}
		pass(10 * time.Second)
		b.set(func() { b.away = false })
		pass(longestPause + time.Second)
		if w := b.written(); len(w) != 1 || w[0].GetCursors()[0].GetFloor() != 8 {
			t.Errorf("%v", w)
		}
	})
}

// Dead letters that can't be stored are not dropped with the positions behind them kept: the hold
// ends, and the session stays where it was.
func TestWhatCannotBeStoredIsBounded(t *testing.T) {
	for _, detach := range []bool{false, true} {
		t.Run(fmt.Sprint("detach ", detach), func(t *testing.T) {
			in(t, func(b *bench) {
				g := b.attach(1)
				b.set(func() { b.away = true })
				b.Save(conn(1), 0, write(g, 1), true)
				pass(time.Second)
				large := write(g, 2)
				large.DeadLetters = []*meshv1.DeadLetter{{Body: make([]byte, maxPending)}}
				large.Detach = detach
				b.Save(conn(1), 9, large, true)
				if saved := (<-b.events).(exchange.Saved); saved.Ref != 9 || code.Of(saved.Err) != wirev1.Code_CODE_OVERLOADED {
					t.Errorf("%+v", saved)
				}
				if !detach {
					if e := (<-b.events).(exchange.Detached); e.Conn != conn(1) || code.Of(e.Err) != wirev1.Code_CODE_OVERLOADED {
						t.Errorf("%+v", e)
					}
					b.Save(conn(1), 0, write(g, 3), true) // it does not know yet
					if e := (<-b.events).(exchange.Detached); e.Err != nil {
						t.Errorf("%+v", e)
					}
				}
				pass(time.Second)
				b.set(func() { b.away = false })
				pass(longestPause + time.Second)
				if w := b.written(); len(w) != 1 || len(w[0].GetDeadLetters())+len(w[0].GetCursors()) != 0 || !w[0].GetDetach() || b.Overflowed.Load() != 1 || b.Held.Load() != 0 {
					t.Errorf("%d writes, %d dropped, %d held", len(w), b.Overflowed.Load(), b.Held.Load())
				}
				b.attach(2)
			})
		})
	}
}

// A write that the store refuses for good ends the hold too.
func TestWhatTheStoreRefusesEndsTheHold(t *testing.T) {
	in(t, func(b *bench) {
		g := b.attach(1)
		b.set(func() { b.refuse = wirev1.Code_CODE_INVALID_ARGUMENT })
		b.Save(conn(1), 0, write(g, 1), true)
		if e := (<-b.events).(exchange.Detached); code.Of(e.Err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%+v", e)
		}
		b.set(func() { b.refuse = wirev1.Code_CODE_OK })
		pass(longestPause + time.Second)
		if w := b.written(); len(w[len(w)-1].GetCursors()) != 0 || !w[len(w)-1].GetDetach() || b.Held.Load() != 0 {
			t.Errorf("%v, %d held", w, b.Held.Load())
		}
	})
}

func TestAttachGivenUpEndsTheHold(t *testing.T) {
	in(t, func(b *bench) {
		b.raising = func() { b.Save(conn(1), 0, &meshv1.SessionWrite{User: "u", Name: "s", Detach: true}, true) }
		b.Attach(conn(1), "u", "s", 0, 1, "")
		pass(time.Second)
		if w := b.written(); len(w) != 1 || !w[0].GetDetach() || w[0].GetGeneration() != 1 || b.Held.Load() != 0 {
			t.Errorf("%v, %d held", w, b.Held.Load())
		}
	})
}

func TestManySessionsShareAWrite(t *testing.T) {
	in(t, func(b *bench) {
		for i := range uint32(300) {
			b.Attach(conn(i), fmt.Sprint("u", i), "s", 0, 1, "")
			g := (<-b.events).(exchange.Attached).Generation
			w := write(g, 1)
			w.User = fmt.Sprint("u", i)
			b.Save(conn(i), 0, w, false)
		}
		pass(2 * time.Second)
		if n := len(b.written()); n != 300 || len(b.writes) > 30 {
			t.Errorf("%d sessions in %d requests", n, len(b.writes))
		}
	})
}

// stored is what a session has in the store, which has seen some writes.
type stored struct {
	cursors map[string]uint64
	filters map[string]bool
	dead    []uint64
}

// newStored has everything that writes may remove.
func newStored() *stored {
	return &stored{cursors: map[string]uint64{"a": 1000, "b": 1000, "c": 1000}, filters: map[string]bool{"a": true, "b": true, "c": true}}
}

func (s *stored) apply(w *meshv1.SessionWrite) {
	for _, c := range w.GetCursors() {
		s.cursors[c.GetTopic()] = c.GetFloor()
	}
	for _, t := range w.GetRemoveTopics() {
		delete(s.cursors, t)
	}
	for _, f := range w.GetAddFilters() {
		s.filters[f] = true
	}
	for _, f := range w.GetRemoveFilters() {
		delete(s.filters, f)
	}
	for _, l := range w.GetDeadLetters() {
		s.dead = append(s.dead, l.GetSeq())
	}
}

func drawWrite(t *rapid.T, i int) *meshv1.SessionWrite {
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	w := &meshv1.SessionWrite{User: "u", Name: "s"}
	switch rapid.IntRange(0, 3).Draw(t, "cursor") {
	case 0, 1:
		w.Cursors = []*meshv1.SessionCursor{{Topic: name.Draw(t, "topic"), Floor: uint64(i)}}
	case 2:
		w.RemoveTopics = []string{name.Draw(t, "topic")}
	}
	switch rapid.IntRange(0, 2).Draw(t, "filter") {
	case 0:
		w.AddFilters = []string{name.Draw(t, "filter")}
	case 1:
		w.RemoveFilters = []string{name.Draw(t, "filter")}
	}
	if rapid.Bool().Draw(t, "dead") {
		w.DeadLetters = []*meshv1.DeadLetter{{Seq: uint64(i), Body: make([]byte, i)}}
	}
	return w
}

// Whatever is merged in whatever parts, the result of writing it is that of writing every part in
// turn.
func TestMergingIsWritingInTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := newStored(), newStored()
		older, newer := newPending(1), newPending(1)
		n := rapid.IntRange(1, 20).Draw(t, "writes")
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		older.tries, older.refs, newer.refs = 3, []ref{{conn(1), 1}}, []ref{{conn(1), 2}}
		for i := range n {
			w := drawWrite(t, i)
			w.Detach = i == n-1 && rapid.Bool().Draw(t, "detach")
			one.apply(w)
			if i < cut {
				older.merge(w)
			} else {
				newer.merge(w)
			}
		}
		leaves := older.detach || newer.detach
		newer.before(older)
		w := newer.write("u", "s")
		two.apply(w)
		if fmt.Sprint(one) != fmt.Sprint(two) {
			t.Fatalf("in turn %v, merged %v", one, two)
		}
		if newer.size < proto.Size(newer.write("", ""))-8 {
			t.Fatal("the size is no upper bound")
		}
		if w.GetDetach() != leaves || w.GetGeneration() != 1 || newer.tries != 3 || len(newer.refs) != 2 || newer.refs[0].ref != 1 {
			t.Fatalf("%v, %d tries, answers %v", w, newer.tries, newer.refs)
		}
		if bare := len(w.GetCursors())+len(w.GetRemoveTopics())+len(w.GetAddFilters())+len(w.GetRemoveFilters())+len(w.GetDeadLetters()) == 0; newer.bare() != (leaves && bare) {
			t.Fatalf("%v is bare: %v", w, newer.bare())
		}
	})
}

// However often the store fails: in the end it has what was saved, in the order in which it was,
// dead letters too, and everybody who waits has one answer.
func TestWhateverFailsTheStoreGetsWhatWasSaved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(rt, "writes")
		var writes []*meshv1.SessionWrite
		var away, now []bool
		var pauses []int
		for i := range n {
			writes = append(writes, drawWrite(rt, i))
			away, now = append(away, rapid.Bool().Draw(rt, "away")), append(now, rapid.Bool().Draw(rt, "now"))
			pauses = append(pauses, rapid.SampledFrom([]int{0, 1, 300, 1200, 6000}).Draw(rt, "ms"))
		}
		in(t, func(b *bench) {
			g := b.attach(1)
			b.writeTime = 500 * time.Millisecond
			want, got := newStored(), newStored()
			for i, w := range writes {
				w.Generation = g
				want.apply(w)
				b.set(func() { b.away = away[i] })
				b.Save(conn(1), uint32(i+1), proto.Clone(w).(*meshv1.SessionWrite), now[i])
				pass(time.Duration(pauses[i])*time.Millisecond + 1)
			}
			b.set(func() { b.away = false })
			pass(3 * longestPause)
			for _, w := range b.written() {
				got.apply(w)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				rt.Errorf("stored %v, saved %v", got, want)
			}
			answered := map[uint32]int{}
			for len(b.events) > 0 {
				answered[(<-b.events).(exchange.Saved).Ref]++
			}
			for i := range writes {
				if answered[uint32(i+1)] != 1 {
					rt.Errorf("write %d was answered %d times", i+1, answered[uint32(i+1)])
				}
			}
		})
	})
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

// Who may not create a session is told so at once, with the time to come back: the store is not
// asked again.
func TestAFullStoreIsAskedOnce(t *testing.T) {
	in(t, func(b *bench) {
		for _, full := range []*code.Error{
			code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "too many sessions of this user"),
			code.Retry(wirev1.Code_CODE_OVERLOADED, time.Minute, "too many sessions"),
		} {
			b.set(func() { b.full, b.origins = full, nil })
			b.Attach(conn(1), "u", "s", 0, 1, "192.0.2.1")
			e, ok := (<-b.events).(exchange.Attached)
			if got := code.From(e.Err); !ok || got.Code != full.Code || got.RetryAfter != full.RetryAfter {
				t.Errorf("%+v, want %v", e, full)
			}
			b.set(func() {
				if len(b.origins) != 1 || b.origins[0] != "192.0.2.1" {
					t.Errorf("asked for %v", b.origins)
				}
			})
		}
		if n := b.kept(); n != 0 {
			t.Errorf("%d sessions are kept", n)
		}
	})
}
