package claimclient

import (
	"context"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// The end of a connection is said until a store has confirmed it.
func TestUntieIsRepeated(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(waits(1))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3, Bound: true})
	s.answers(func(m *meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_UNAVAILABLE}
	})
	n.End(3)
	s.op(t, 2, of(untie))
	s.answers(nil)
	s.op(t, 3, of(untie))
	s.says(free())
	s.breaks()
	if m := s.op(t, 4, of(untie)); m.GetConn() != 3 || m.GetOwner() != "o" || m.GetResource() != "r" {
		t.Errorf("got %v", m)
	}
	n.none(t)
	n.heard(t)
}

// none waits until nobody is told of anything.
func (n *node) none(t *testing.T) {
	t.Helper()
	for n.ties.Load() != 0 {
		if t.Context().Err() != nil {
			t.Fatal("ties are left")
		}
		n.callQuietly(t)
	}
	for i := range n.shards {
		n.eachOf(i, func(e *entry) { t.Errorf("left: %v", e.key) })
	}
	for i := range n.conns {
		if len(n.conns[i].entries) > 0 {
			t.Errorf("connections are left: %v", n.conns[i].entries)
		}
	}
}

// callQuietly goes once to the store and back.
func (n *node) callQuietly(t *testing.T) {
	t.Helper()
	if _, err := n.Call(t.Context(), &meshv1.ClaimOp{Kind: check, Resource: "elsewhere", Owner: "nobody"}); err != nil {
		t.Fatal(err)
	}
}

// A connection that ends while its operation is under way: its end is said behind it.
func TestEndDuringAnOperation(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	done := make(chan struct{})
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire, Conn: 3}), func(*meshv1.ClaimResult) { close(done) })
	m := s.op(t, 1, of(acquire))
	n.End(3)
	if s.count(of(untie)) != 0 {
		t.Error("too early")
	}
	s.says(free())
	s.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{ok(m, waits(1))}, Pushes: []*meshv1.ClaimPush{toConn(3, granted(1))}})
	<-done
	s.op(t, 1, of(untie))
	n.none(t)
	n.heard(t)
}

// Two connections of one owner at one place: both are told, and when the newer ends the other takes
// over before its end is said.
func TestTwoConnectionsOfAnOwner(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(waits(3))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3, Bound: true})
	s.says(waits(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 4})
	n.heard(t, "3 o QUEUED 2") // of the other's answer
	s.pushes(t, toConn(4, granted(7)))
	n.heard(t, "3 o QUEUED 2", "3 o GRANTED 7", "4 o GRANTED 7")
	s.says(granted(7))
	n.End(4)
	s.op(t, 1, of(untie))
	for n.ties.Load() != 1 {
		n.callQuietly(t)
	}
	s.mu.Lock()
	again := slices.IndexFunc(s.ops, func(m *meshv1.ClaimOp) bool { return m.GetKind() == check && m.GetConn() == 3 && m.GetBound() })
	end := slices.IndexFunc(s.ops, of(untie))
	s.mu.Unlock()
	if again < 0 || again > end {
		t.Errorf("the other is tied by operation %d, the end is said by %d", again, end)
	}
	s.pushes(t, toConn(3, lost(7, wirev1.Code_CODE_EXPIRED)))
	n.heard(t, "3 o QUEUED 2", "3 o GRANTED 7", "4 o GRANTED 7", "3 o LOST 7 EXPIRED")
	n.none(t)
}

// What an owner does without a connection is told to those that it has at the node.
func TestOperationsWithoutAConnection(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(granted(7))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.says(released())
	n.call(t, &meshv1.ClaimOp{Kind: release, Token: 7})
	n.heard(t, "3 o RELEASED")
	s.pushes(t, toConn(3, released())) // known already
	s.says(free())
	n.callQuietly(t)
	n.heard(t, "3 o RELEASED")
	n.none(t)
}

// An answer that does not report whether there is a place has it asked for.
func TestTokenThatIsNotHeld(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(granted(7))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.answers(func(m *meshv1.ClaimOp) *meshv1.ClaimResult {
		if m.GetKind() == renew {
			return &meshv1.ClaimResult{Code: wirev1.Code_CODE_NOT_HELD}
		}
		return ok(m, held("x"))
	})
	if _, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: renew, Token: 7, Conn: 3})); code.Of(err) != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("got %v", err)
	}
	n.heard(t, "3 o LOST 7 NOT_HELD")
}

// Who watches is told of the resource while it has no place, and of the place while it has one.
func TestWatch(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(held("x"))
	n.call(t, &meshv1.ClaimOp{Kind: watch, Conn: 3})
	s.pushes(t, toWatchers(free()), toWatchers(held("y")), toWatchers(held("y")))
	n.heard(t, "3 o FREE", "3 o HELD_BY_OTHER y")
	s.says(waits(1))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.pushes(t, toWatchers(held("z")), toConn(3, granted(9)))
	n.heard(t, "3 o FREE", "3 o HELD_BY_OTHER y", "3 o GRANTED 9")
	s.says(held("w"))
	s.pushes(t, toConn(3, lost(9, wirev1.Code_CODE_EXPIRED)))
	n.heard(t, "3 o FREE", "3 o HELD_BY_OTHER y", "3 o GRANTED 9", "3 o LOST 9 EXPIRED", "3 o HELD_BY_OTHER w")
	n.End(3)
	s.op(t, 1, of(unwatch))
	n.none(t)
}

// An owner that watches learns of a place that it got without a connection of this node.
func TestWatchFindsAPlace(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(held("x"))
	n.call(t, &meshv1.ClaimOp{Kind: watch, Conn: 3})
	s.says(granted(4))
	s.pushes(t, toWatchers(held("o")))
	n.heard(t, "3 o GRANTED 4")
	if m := s.op(t, 2, of(watch)); m.GetConn() != 3 {
		t.Errorf("asked with %v", m)
	}
}

// The store is told once, when the last of a resource's watchers ends; and again, where it goes on.
func TestUnwatch(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(free())
	for conn, owner := range map[uint64]string{3: "a", 4: "b", 5: "a"} {
		n.call(t, &meshv1.ClaimOp{Kind: watch, Owner: owner, Conn: conn})
	}
	if _, err := n.Call(t.Context(), &meshv1.ClaimOp{Kind: watch, Resource: "r", Conn: 6}); err != nil {
		t.Fatal(err)
	}
	s.pushes(t, toWatchers(held("x")))
	n.count(t, 4)
	n.End(3)
	n.call(t, &meshv1.ClaimOp{Kind: leave, Owner: "b", Conn: 4})
	n.End(5)
	n.callQuietly(t)
	if s.count(of(unwatch)) != 0 {
		t.Error("somebody watches still")
	}
	n.End(6)
	s.op(t, 1, of(unwatch))
	s.pushes(t, toWatchers(free()))
	s.op(t, 2, of(unwatch))
	n.none(t)
}

// count waits until so many were told.
func (n *node) count(t *testing.T, want int) {
	t.Helper()
	for {
		n.mu.Lock()
		got, changed := len(n.told), n.changed
		n.mu.Unlock()
		if got >= want {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("too few")
		}
	}
}

// A watch that failed is none.
func TestWatchThatFails(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.answers(func(m *meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_INVALID_ARGUMENT, Error: "no"}
	})
	if _, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: watch, Conn: 3})); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("got %v", err)
	}
	s.op(t, 1, of(unwatch))
	if got := n.ties.Load(); got != 0 {
		t.Errorf("%d ties", got)
	}
}

// A store that tells of a connection which is gone learns that.
func TestPushToAConnectionThatIsGone(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(free())
	n.callQuietly(t)
	s.pushes(t, toConn(77, granted(1)))
	if m := s.op(t, 1, of(untie)); m.GetConn() != 77 {
		t.Errorf("got %v", m)
	}
	n.heard(t)
}

// A place that was left is nobody's; a hold that was taken up stays.
func TestLeave(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(granted(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	n.call(t, &meshv1.ClaimOp{Kind: leave, Conn: 3})
	s.pushes(t, toConn(3, lost(2, wirev1.Code_CODE_EXPIRED)))
	n.heard(t, "3 o LOST 2 EXPIRED")
	s.says(waits(1))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.says(released())
	n.call(t, &meshv1.ClaimOp{Kind: leave, Conn: 3})
	s.says(free())
	n.none(t)
	n.heard(t, "3 o LOST 2 EXPIRED")
}

// A connection whose first operation is under way is told nothing before its answer: what comes
// until then may be from before it asked.
func TestTheAnswerComesFirst(t *testing.T) {
	for name, kind := range map[string]meshv1.ClaimOp_Kind{"watch": watch, "acquire": acquire} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			n := newNode(t, Config{}, s)
			s.says(waits(2))
			n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
			s.answers(nil)
			n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: kind, Conn: 4}), func(r *meshv1.ClaimResult) { n.tell(4, "answer", r.GetState()) })
			m := s.op(t, 1, func(m *meshv1.ClaimOp) bool { return m.GetConn() == 4 })
			s.sends(t, &meshv1.StoreServiceClaimsResponse{
				Pushes: []*meshv1.ClaimPush{toConn(3, granted(5)), toConn(3, lost(5, wirev1.Code_CODE_EXPIRED))},
			})
			n.heard(t, "3 o GRANTED 5", "3 o LOST 5 EXPIRED")
			s.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{ok(m, waits(1))}, Pushes: []*meshv1.ClaimPush{toConn(4, granted(9))}})
			n.heard(t, "3 o GRANTED 5", "3 o LOST 5 EXPIRED", "4 answer QUEUED 1", "4 o GRANTED 9")
		})
	}
}

// A connection whose first operation has an unknown outcome is told what is found out, also where
// that is nothing new to the others.
func TestAnUnknownOutcomeIsToldToWhoAsked(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(waits(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.answers(nil)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan *meshv1.ClaimResult, 1)
	n.Do(ctx, fill(&meshv1.ClaimOp{Kind: acquire, Conn: 4}), func(r *meshv1.ClaimResult) { results <- r })
	s.op(t, 2, of(acquire))
	s.says(waits(2))
	cancel()
	if r := <-results; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", r)
	}
	n.heard(t, "4 o QUEUED 2")
}

// A connection that has the answer to a later operation is told what comes after that, also while
// its first one is under way at a store that hangs.
func TestALossIsToldWhileTheFirstOperationHangs(t *testing.T) {
	a, b := newStore(t), newStore(t)
	a.own(0, last, shards(1, 0, b.addr))
	b.own(1, 0)
	n := newNode(t, Config{}, a, b)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: check, Conn: 4}), func(*meshv1.ClaimResult) {})
	a.op(t, 1, of(check)) // and a hangs
	b.says(granted(9))
	b.own(0, last)
	a.own(1, 0)
	n.stores.Refresh()
	n.knows(t, last, b.addr)
	if st := n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 4}); show(st) != "GRANTED 9" {
		t.Fatal(st)
	}
	b.pushes(t, toConn(4, lost(9, wirev1.Code_CODE_EXPIRED)))
	b.says(free())
	n.callQuietly(t)
	n.heard(t, "4 o LOST 9 EXPIRED")
}

// A late answer to who asked itself is not what it goes by: its outcome is unknown, and it is told
// what is found, once.
func TestALateAnswerToWhoAsked(t *testing.T) {
	a, b := newStore(t), newStore(t)
	a.own(0, last, shards(1, 0, b.addr))
	b.own(1, 0)
	n := newNode(t, Config{}, a, b)
	late := make(chan *meshv1.ClaimResult, 1)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire, Conn: 4}), func(r *meshv1.ClaimResult) { late <- r })
	asked := a.op(t, 1, of(acquire)) // and a hangs
	b.says(granted(9))
	b.own(0, last)
	a.own(1, 0)
	n.stores.Refresh()
	n.knows(t, last, b.addr)
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	a.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{ok(asked, waits(2))}})
	if r := <-late; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("it is told %v", r)
	}
	n.heard(t, "4 o GRANTED 9")
	b.op(t, 1, of(check)) // what came of it is asked for
	n.callQuietly(t)      // behind the answer to that
	n.heard(t, "4 o GRANTED 9")
}

// What a connection was not told for the sake of its first answer it is told where there is none.
func TestWhatWasNotToldForTheAnswer(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(granted(5))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.answers(nil)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_RENEW, Conn: 4, Token: 5}), func(r *meshv1.ClaimResult) { n.note(r.GetCode().String()) })
	m := s.op(t, 1, of(meshv1.ClaimOp_KIND_RENEW))
	s.pushes(t, toConn(3, lost(5, wirev1.Code_CODE_EXPIRED)))
	n.heard(t, "3 o LOST 5 EXPIRED")
	s.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{{Ref: m.GetRef(), Code: wirev1.Code_CODE_OVERLOADED}}})
	n.heard(t, "3 o LOST 5 EXPIRED", "4 o LOST 5 EXPIRED", "CODE_OVERLOADED")
}

// The answer of a store that has lost the shard since is a reason to ask the new owner, which knows
// nothing of the connection.
func TestAnAnswerOfWhoOwnsItNoMore(t *testing.T) {
	a, b := newStore(t), newStore(t)
	a.own(0, last, shards(1, 0, b.addr))
	b.own(1, 0)
	n := newNode(t, Config{}, a, b)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire, Conn: 4}), func(r *meshv1.ClaimResult) { n.tell(4, "answer", r.GetState()) })
	asked := a.op(t, 1, of(acquire)) // and a hangs
	b.says(granted(9))
	b.own(0, last)
	a.own(1, 0)
	n.stores.Refresh()
	n.knows(t, last, b.addr)
	n.callQuietly(t) // b has been spoken to
	a.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{ok(asked, waits(2))}})
	n.heard(t, "4 answer QUEUED 2", "4 o GRANTED 9")
}

// A connection that can't watch is not told of the resource.
func TestAWatchThatIsRefused(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(held("a"))
	n.call(t, &meshv1.ClaimOp{Kind: watch, Conn: 3})
	s.answers(nil)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: watch, Conn: 4}), func(r *meshv1.ClaimResult) { n.note(r.GetCode().String()) })
	m := s.op(t, 1, func(m *meshv1.ClaimOp) bool { return m.GetConn() == 4 })
	s.pushes(t, toWatchers(held("b")))
	n.heard(t, "3 o HELD_BY_OTHER b")
	s.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{{Ref: m.GetRef(), Code: wirev1.Code_CODE_OVERLOADED}}})
	n.heard(t, "3 o HELD_BY_OTHER b", "CODE_OVERLOADED")
}
