package claims_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/claims"
)

// gate has each commit of a database say that it begins, and wait for leave.
func gate(db *database) (entered chan struct{}, leave chan error) {
	entered, leave = make(chan struct{}), make(chan error)
	db.set(func(what string, _ backend.Owner) error {
		if what != "commit" {
			return nil
		}
		entered <- struct{}{}
		return <-leave
	}, nil)
	return entered, leave
}

func listOf(name string) *meshv1.StoreServiceListClaimsRequest {
	return &meshv1.StoreServiceListClaimsRequest{Resource: name}
}

// A list tells what is committed, once the database has said that this store may; who asks while
// that can't be said is told to come back, and so are more than 64 who wait.
func TestListsFollowTheCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		is(t, e.do(told("r/1", "ann", 7)), granted)
		is(t, e.do(told("r/1", "bob", 8)), queued)
		page, err := s.lane.List(t.Context(), listOf("r/1"))
		if err != nil || len(page.GetPlaces()) != 2 || page.GetPlaces()[0].GetOwner() != "ann" || page.GetNextShard() != topic.Shards {
			t.Errorf("%v, %v", page, err)
		}
		if _, err := s.lane.List(t.Context(), &meshv1.StoreServiceListClaimsRequest{Resource: "r/1", After: []byte("nonsense")}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("nonsense: %v", err)
		}
		entered, leave := gate(db)
		listed := make(chan error, 100)
		ask := func(ctx context.Context) {
			go func() {
				_, err := s.lane.List(ctx, listOf("r/1"))
				listed <- err
			}()
		}
		ask(t.Context())
		<-entered
		synctest.Wait()
		if len(listed) > 0 {
			t.Fatal("listed before the database has said that this store may")
		}
		leave <- nil
		if err := <-listed; err != nil {
			t.Error(err)
		}
		ask(t.Context())
		<-entered
		for range 64 {
			ask(t.Context())
		}
		synctest.Wait()
		if len(listed) > 0 {
			t.Fatalf("64 wait, and %d are answered: %v", len(listed), <-listed)
		}
		ask(t.Context())
		if err := <-listed; code.Of(err) != wirev1.Code_CODE_OVERLOADED || code.From(err).RetryAfter == 0 {
			t.Errorf("one more: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		db.set(func(string, backend.Owner) error { return errCut }, nil)
		leave <- errCut
		for range 65 {
			if err := <-listed; code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || code.From(err).RetryAfter == 0 {
				t.Errorf("the commit failed: %v", err)
			}
		}
		ask(ctx)
		synctest.Wait()
		cancel()
		if err := <-listed; err == nil {
			t.Error("who gave up is answered")
		}
		begun := time.Now()
		ask(t.Context())
		if err := <-listed; code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || time.Since(begun) > 2*time.Second {
			t.Errorf("without a database, after %s: %v", time.Since(begun), err)
		}
		s.stop()
		if _, err := s.lane.List(t.Context(), listOf("r/1")); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("a store that has stopped: %v", err)
		}
	})
}

// A node with many operations holds up no other: they take turns, and a commit has so many of each.
func TestNodesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		many, few := s.node("edge:1", 1), s.node("edge:2", 1)
		is(t, many.do(op(check, "r/1", "x", 0)), free)
		is(t, few.do(op(check, "r/1", "x", 0)), free)
		entered, leave := gate(db)
		first := few.begin(op(check, "r/1", "x", 0))
		<-entered
		var all []chan *meshv1.ClaimResult
		for i := range 4 {
			ops := make([]*meshv1.ClaimOp, 1000)
			for k := range ops {
				ops[k] = op(acquire, fmt.Sprintf("r/%d/%d", i, k), "ann", 0)
			}
			all = append(all, many.begin(ops...)...)
		}
		synctest.Wait()
		last := few.begin(op(check, "r/1", "x", 0))[0]
		synctest.Wait()
		leave <- nil
		<-first[0]
		done := func() (n int) {
			synctest.Wait()
			for _, c := range all {
				n += len(c)
			}
			return n
		}
		for commits := 1; ; commits++ {
			<-entered
			leave <- nil
			n := done()
			if want := min(512*commits-1, 4000); n != want {
				t.Fatalf("after %d commits %d operations are answered, want %d", commits, n, want)
			}
			if len(last) == 0 {
				t.Fatalf("%d operations of one node came before the only one of another", n)
			}
			if n == 4000 {
				break
			}
		}
		db.set(nil, nil)
	})
}

// A store that does not know the policies serves nothing, and one that does not understand those of
// a namespace nothing there.
func TestNothingIsServedWithoutAPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		known := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "orders", NotUnderstood: "a field"}})
		s := open(t, db, "a", true, func(s *store, _ *claims.Config) { s.table = policy.Unknown("not yet") })
		e := s.node("edge:1", 1)
		begun := time.Now()
		refused(t, e.do(op(acquire, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
		if waited := time.Since(begun); waited < time.Second || waited > 2200*time.Millisecond {
			t.Errorf("refused after %s", waited)
		}
		if why := s.lane.Check(); why == nil || !strings.Contains(why.Error(), "not yet") || db.opened() != 0 {
			t.Errorf("%d runs were begun: %v", db.opened(), s.lane.Check())
		}
		s.mu.Lock()
		s.table = known
		s.mu.Unlock()
		pass(2 * time.Second)
		s.ready()
		is(t, e.do(op(acquire, "r/1", "ann", 0)), granted)
		if r := e.do(op(acquire, "orders/1", "ann", 0)); r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || !strings.Contains(r.GetError(), "orders") {
			t.Errorf("a namespace that is not understood: %v", r)
		}
	})
}

// While a run can't be begun operations wait a little, and are refused after a second; tries grow
// rarer, up to one a second; and once all is well, the next failure is mended as fast as the first.
func TestARunIsBegunAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		is(t, e.do(op(acquire, "r/1", "ann", 0)), granted)
		for round := range 2 {
			var until atomic.Int64
			fails := func(d time.Duration) {
				until.Store(time.Now().Add(d).UnixNano())
				db.set(func(string, backend.Owner) error {
					if time.Now().UnixNano() < until.Load() {
						return errCut
					}
					return nil
				}, nil)
			}
			fails(300 * time.Millisecond)
			refused(t, e.do(op(check, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
			<-e.ended
			e = s.node("edge:1", 1)
			begun := time.Now()
			is(t, e.do(op(check, "r/1", "ann", 0)), granted)
			if waited := time.Since(begun); waited < 200*time.Millisecond || waited > 700*time.Millisecond {
				t.Errorf("round %d: answered after %s", round, waited)
			}
			s.ready()
			pass(100 * time.Millisecond) // and has turned once more since
			before := db.opened()
			fails(20 * time.Second)
			refused(t, e.do(op(check, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
			<-e.ended
			e = s.node("edge:1", 1)
			begun = time.Now()
			refused(t, e.do(op(check, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
			if waited := time.Since(begun); waited < 900*time.Millisecond || waited > 2200*time.Millisecond {
				t.Errorf("round %d: refused after %s", round, waited)
			}
			begun = time.Now()
			refused(t, e.do(op(check, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
			if waited := time.Since(begun); waited > 0 {
				t.Errorf("round %d: the next is refused after %s", round, waited)
			}
			pass(18 * time.Second)
			if n := db.opened() - before; n < 22 || n > 27 {
				// seven in the first 1.3 s, then one a second
				t.Errorf("round %d: %d tries in 20 s", round, n)
			}
			pass(3 * time.Second)
			s.ready()
			is(t, e.do(op(check, "r/1", "ann", 0)), granted)
			e.do(op(release, "r/1", "ann", is(t, e.do(op(check, "r/1", "ann", 0)), granted).GetToken()))
			is(t, e.do(op(acquire, "r/1", "ann", 0)), granted)
		}
	})
}

// A store with nothing to do asks the database once a second whether its claims are still its own:
// one whose shards were taken meanwhile finds out.
func TestAnIdleStoreFindsOutThatItIsFenced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		db.mu.Lock()
		before := db.commits
		db.mu.Unlock()
		pass(20 * time.Second)
		e := s.node("edge:1", 1)
		synctest.Wait() // it is there before the store can find out
		db.mu.Lock()
		if n := db.commits - before; n < 18 || n > 21 {
			t.Errorf("asked %d times in 20 s", n)
		}
		for _, r := range db.owner {
			db.end(r)
			break
		}
		db.mu.Unlock()
		pass(1100 * time.Millisecond)
		select {
		case <-e.ended:
		default:
			t.Error("the node is not told to ask again")
		}
		s.ready()
	})
}

// Whoever half-closes gets all answers; a message of too many operations, and a node without a
// proper name, end the stream.
func TestHowAStreamEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("router:1", 1)
		is(t, e.do(op(check, "r/1", "ann", 0)), free)
		entered, leave := gate(db)
		c := e.begin(op(acquire, "r/1", "ann", 0))[0]
		<-entered
		close(e.in)
		synctest.Wait()
		select {
		case <-e.ended:
			t.Error("it ended with an operation under way")
		default:
		}
		db.set(nil, nil)
		leave <- nil
		is(t, <-c, granted)
		if <-e.ended; e.err != nil {
			t.Errorf("ended with %v", e.err)
		}
		e = s.node("edge:1", 1)
		ops := make([]*meshv1.ClaimOp, 1001)
		for i := range ops {
			ops[i] = op(check, "r/1", "ann", 0)
		}
		e.begin(ops...)
		if <-e.ended; code.Of(e.err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("1,001 operations: %v", e.err)
		}
		for name, good := range map[string]bool{
			"edge:" + strings.Repeat("x", 250): true, "edge:" + strings.Repeat("x", 251): false, "edge:\x00": false, "edge:\xff": false, "": false, "store:1": false,
		} {
			e := s.node(name, 1)
			synctest.Wait()
			select {
			case <-e.ended:
				if good || code.Of(e.err) != wirev1.Code_CODE_INVALID_ARGUMENT {
					t.Errorf("%q: %v", name, e.err)
				}
			default:
				if !good {
					t.Errorf("%q has a stream", name)
				}
			}
		}
		for _, bad := range []*meshv1.ClaimOp{op(acquire, "r/\x00", "x", 0), op(acquire, "r/1", "\x00", 0), {Kind: release, Resource: "r/1", Owner: "ann", Token: 1, Successor: "\xff"}} {
			refused(t, s.node("edge:2", 1).do(bad), wirev1.Code_CODE_INVALID_ARGUMENT)
		}
	})
}

// What operators see: who holds and who waits, how long commits and waits took, what ended and what
// was refused and why, and how often all was read anew.
func TestClaimsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db, reg := newDatabase(), prometheus.NewRegistry()
		s := open(t, db, "a", true, func(_ *store, cfg *claims.Config) { cfg.Registry = reg })
		s.ready()
		expect := func(when string, want map[string]float64) {
			t.Helper()
			pass(100 * time.Millisecond)
			all, err := reg.Gather()
			need(t, err)
			got := map[string]float64{}
			for _, f := range all {
				for _, m := range f.GetMetric() {
					name := strings.TrimPrefix(f.GetName(), "pushmesh_store_claims_")
					for _, l := range m.GetLabel() {
						name += " " + l.GetValue()
					}
					got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
					if h := m.GetHistogram(); h != nil {
						got[name] = float64(h.GetSampleCount())
						got[name+" sum"] = h.GetSampleSum()
					}
				}
			}
			for name, n := range want {
				if got[name] != n {
					t.Errorf("%s: %s is %v, want %v", when, name, got[name], n)
				}
			}
		}
		e := s.node("edge:1", 1)
		ann := is(t, e.do(told("r/1", "ann", 7)), granted)
		is(t, e.do(told("r/1", "bob", 8)), queued)
		refused(t, e.do(op(renew, "r/1", "ann", 1)), wirev1.Code_CODE_NOT_HELD)
		refused(t, e.do(op(renew, "r/1\x00", "ann", 1)), wirev1.Code_CODE_INVALID_ARGUMENT)
		expect("one holds, one waits", map[string]float64{
			"holds": 1, "queued": 1, "wait_seconds": 1, "wait_seconds sum": 0, "refused_total NOT_HELD": 1, "refused_total INVALID_ARGUMENT": 1, "batch_ops": 3, "batch_ops sum": 3,
			"commit_failures_total": 0, "reloads_total": 0,
		})
		pass(5*time.Second - 100*time.Millisecond)
		is(t, e.do(op(release, "r/1", "ann", ann.GetToken())), freed)
		expect("handed over after 5 s", map[string]float64{"holds": 1, "queued": 0, "ended_total OK": 1, "wait_seconds": 2, "expiry_lag_seconds": 0})
		e.next()
		is(t, e.do(op(check, "r/1", "bob", 0)), granted) // taken up
		pass(31 * time.Second)
		expect("expired", map[string]float64{"holds": 0, "ended_total EXPIRED": 1, "expiry_lag_seconds": 1})
		db.set(func(what string, _ backend.Owner) error {
			if what != "commit" {
				return nil
			}
			db.set(nil, nil)
			return errCut
		}, nil)
		refused(t, e.do(told("r/1", "ann", 7)), wirev1.Code_CODE_UNAVAILABLE)
		<-e.ended
		expect("read anew", map[string]float64{"commit_failures_total": 1, "reloads_total": 1, "refused_total UNAVAILABLE": 1})
		is(t, s.node("edge:1", 1).do(op(acquire, "r/2", "ann", 0)), granted)
		expect("held again", map[string]float64{"holds": 1})
		s.stop()
		expect("stopped", map[string]float64{"holds": 0, "queued": 0, "reloads_total": 1})
	})
}
