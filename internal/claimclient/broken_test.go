package claimclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	acquire = meshv1.ClaimOp_KIND_ACQUIRE
	renew   = meshv1.ClaimOp_KIND_RENEW
	release = meshv1.ClaimOp_KIND_RELEASE
	check   = meshv1.ClaimOp_KIND_CHECK
	leave   = meshv1.ClaimOp_KIND_LEAVE
	watch   = meshv1.ClaimOp_KIND_WATCH
	unwatch = meshv1.ClaimOp_KIND_UNWATCH
	untie   = meshv1.ClaimOp_KIND_UNTIE
)

func TestWithoutAnOwner(t *testing.T) {
	s := newStore(t)
	s.own(0, 511)
	n := newNode(t, Config{}, s)
	_, err := n.Call(t.Context(), &meshv1.ClaimOp{Kind: acquire, Resource: resourceIn(high), Owner: "o", Conn: 3})
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	if got := n.ties.Load(); got != 0 {
		t.Errorf("%d ties of an operation that was never sent", got)
	}
}

func low(shard int) bool  { return shard < 512 }
func high(shard int) bool { return shard >= 512 }

// What was sent on a stream that breaks is UNAVAILABLE; what came of it is found out on the next,
// and told.
func TestOutcomeOfABrokenStreamIsFoundOut(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	results := make(chan *meshv1.ClaimResult, 1)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire, Conn: 3, Bound: true}), func(r *meshv1.ClaimResult) { results <- r })
	s.op(t, 1, of(acquire))
	s.says(waits(4))
	s.breaks()
	if r := <-results; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
		t.Errorf("got %v", r)
	}
	n.heard(t, "3 o QUEUED 4")
	if m := s.op(t, 1, of(check)); m.GetConn() != 3 || !m.GetBound() || m.GetOwner() != "o" {
		t.Errorf("asked with %v", m)
	}
}

// A stream that breaks when nothing is under way: places are asked for again, and only what differs
// is told.
func TestLostPushIsFoundOnTheNextStream(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.says(waits(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.breaks()
	s.op(t, 1, of(check)) // nothing new
	s.says(granted(8))
	s.breaks()
	n.heard(t, "3 o GRANTED 8")
	s.says(held("x"))
	s.breaks()
	n.heard(t, "3 o GRANTED 8", "3 o LOST 8 NOT_HELD")
}

// Without any break, everything is asked for again now and then.
func TestLostPushIsFoundByAskingNowAndThen(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{Recheck: 300 * time.Millisecond}, s)
	s.says(waits(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	s.says(granted(8))
	n.heard(t, "3 o GRANTED 8")
	s.op(t, 3, of(check))
	s.says(free())
	n.heard(t, "3 o GRANTED 8", "3 o LOST 8 NOT_HELD")
}

// A store that takes operations and answers nothing.
func TestTimeouts(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{Timeout: 200 * time.Millisecond}, s)
	if _, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire})); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", err)
	}
}

func TestEndOfTheCallersContext(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan *meshv1.ClaimResult, 2)
	n.Do(ctx, fill(&meshv1.ClaimOp{Kind: acquire, Conn: 3}), func(r *meshv1.ClaimResult) { results <- r })
	m := s.op(t, 1, of(acquire))
	cancel()
	if r := <-results; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", r)
	}
	if again := s.op(t, 1, of(check)); again.GetConn() != 3 {
		t.Errorf("nobody asks what came of it: %v", again)
	}
	// late, and of no use
	s.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{ok(m, granted(1))}})
	s.answers(func(m *meshv1.ClaimOp) *meshv1.ClaimResult { return ok(m, free()) })
	n.call(t, &meshv1.ClaimOp{Kind: check, Resource: "barrier"})
	if len(results) != 0 {
		t.Error("told twice")
	}
}

// A store that is gone for good, with an operation that waits for its stream.
func TestStoreThatIsGone(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.srv.Stop()
	if _, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire})); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", err)
	}
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	results := make(chan *meshv1.ClaimResult, 1)
	n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire, Conn: 9}), func(r *meshv1.ClaimResult) { results <- r })
	s.op(t, 1, of(acquire))
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-results; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("got %v", r)
	}
	if _, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire})); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("after the stop: %v", err)
	}
}

// The store refuses, since another has the shard now: it is asked, and keeps the place's tie.
func TestOwnerChanges(t *testing.T) {
	a, b := newStore(t), newStore(t)
	b.own(1, 0)
	n := newNode(t, Config{}, a)
	a.says(waits(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	a.answers(func(*meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_CONFLICT}
	})
	b.says(granted(5))
	a.own(1, 0, shards(0, last, b.addr))
	b.own(0, last)
	if st := n.call(t, &meshv1.ClaimOp{Kind: check}); show(st) != "GRANTED 5" {
		t.Errorf("got %v", st)
	}
	if m := b.op(t, 1, func(m *meshv1.ClaimOp) bool { return m.GetConn() == 3 }); m.GetKind() != check {
		t.Errorf("the new owner is asked %v", m)
	}
	n.heard(t, "3 o GRANTED 5")
	a.wait(t, "the stream to who owns nothing ends", func() bool { return len(a.streams) == 0 })
	n.callQuietly(t) // behind all that was asked so far
	b.says(free())
	b.pushes(t, toConn(3, lost(5, wirev1.Code_CODE_NOT_HELD)))
	n.heard(t, "3 o GRANTED 5", "3 o LOST 5 NOT_HELD")
}

// What is pushed by a store that did not speak of the place last is not taken, but a reason to
// ask.
func TestPushOfAnotherStore(t *testing.T) {
	a, b := newStore(t), newStore(t)
	a.own(0, 511, shards(512, last, b.addr))
	b.own(512, last, shards(0, 511, a.addr))
	n := newNode(t, Config{}, a)
	n.knows(t, last, b.addr)
	r, far := resourceIn(low), resourceIn(high)
	state := waits(2)
	state.Resource = r
	a.says(state)
	b.says(free())
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Resource: r, Conn: 3})
	n.call(t, &meshv1.ClaimOp{Kind: check, Resource: far})
	wrong := lost(1, wirev1.Code_CODE_EXPIRED)
	wrong.Resource = r
	b.pushes(t, toConn(3, wrong))
	a.op(t, 1, of(check))
	right := waits(1)
	right.Resource = r
	a.pushes(t, toConn(3, right))
	n.heard(t, "3 o QUEUED 1")
}

// What a store answers to a question that came before another took the shard is late news: a store
// that hung has decided it before all that the other has said since.
func TestLateAnswerOfAnotherStore(t *testing.T) {
	a, b := newStore(t), newStore(t)
	a.own(0, last, shards(1, 0, b.addr))
	b.own(1, 0)
	n := newNode(t, Config{Recheck: 300 * time.Millisecond}, a, b)
	a.says(waits(2))
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 3})
	a.answers(nil)
	asked := a.op(t, 1, of(check)) // the store hangs: it has decided, and does not say it
	b.says(granted(9))
	b.own(0, last)
	a.own(1, 0)
	n.stores.Refresh()
	n.knows(t, last, b.addr)
	n.call(t, &meshv1.ClaimOp{Kind: acquire, Conn: 4})
	n.heard(t, "3 o GRANTED 9")
	a.sends(t, &meshv1.StoreServiceClaimsResponse{Results: []*meshv1.ClaimResult{ok(asked, waits(2))}})
	b.op(t, 1, of(check))
	b.pushes(t, toConn(4, lost(9, wirev1.Code_CODE_EXPIRED)))
	n.heard(t, "3 o GRANTED 9", "3 o LOST 9 EXPIRED", "4 o LOST 9 EXPIRED")
}

func TestNobodyOwnsIt(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{}, s)
	s.answers(func(*meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_CONFLICT}
	})
	_, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire}))
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	if got := s.count(of(acquire)); got != 2 {
		t.Errorf("asked %d times", got)
	}
}

// Every operation ends once, whatever ends it: answers, its context, a stream that breaks, the
// time, the stop.
func TestDoneExactlyOnce(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{Timeout: 50 * time.Millisecond, MaxUnderWay: 300}, s)
	var asked atomic.Int64
	s.answers(func(m *meshv1.ClaimOp) *meshv1.ClaimResult {
		switch asked.Add(1) % 4 {
		case 0:
			return nil
		case 1:
			return &meshv1.ClaimResult{Code: wirev1.Code_CODE_CONFLICT}
		}
		return ok(m, &wirev1.ClaimState{Resource: m.GetResource(), State: wirev1.ClaimState_STATE_QUEUED})
	})
	const workers, each = 8, 400
	var done [workers * each]atomic.Int64
	var working, waiting sync.WaitGroup
	waiting.Add(workers * each)
	for w := range workers {
		working.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(context.Background())
				m := &meshv1.ClaimOp{Kind: acquire, Resource: fmt.Sprint("r", i%50), Owner: fmt.Sprint("o", w), Conn: uint64(i%3) * uint64(1+w*each+i)}
				n.Do(ctx, m, func(*meshv1.ClaimResult) {
					done[w*each+i].Add(1)
					waiting.Done()
				})
				switch i % 50 {
				case 7:
					s.breaks()
				case 11:
					cancel()
				}
				if m.GetConn() != 0 {
					n.End(m.GetConn())
				}
				if i%20 == 19 {
					<-time.After(time.Millisecond) // lets others in between
				}
				defer cancel()
			}
		})
	}
	working.Wait()
	if err := n.Stop(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waiting.Wait()
	for i := range done {
		if got := done[i].Load(); got != 1 {
			t.Errorf("operation %d: done %d times", i, got)
		}
	}
	if got := n.underWay.Load(); got != 0 {
		t.Errorf("%d are counted as under way", got)
	}
}

// A node that does not get its operations away refuses more of them.
func TestBounds(t *testing.T) {
	s := newStore(t)
	n := newNode(t, Config{MaxUnderWay: 10, MaxTies: 4}, s)
	for i := range 4 {
		n.Do(t.Context(), &meshv1.ClaimOp{Kind: acquire, Resource: fmt.Sprint("r", i), Owner: "o", Conn: 3}, func(*meshv1.ClaimResult) {})
	}
	if _, err := n.Call(t.Context(), &meshv1.ClaimOp{Kind: acquire, Resource: "more", Owner: "o", Conn: 3}); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("a fifth tie: %v", err)
	}
	for range 6 {
		n.Do(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire}), func(*meshv1.ClaimResult) {})
	}
	_, err := n.Call(t.Context(), fill(&meshv1.ClaimOp{Kind: acquire}))
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter == 0 {
		t.Errorf("an eleventh operation: %v", err)
	}
}
