package claims_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	granted = wirev1.ClaimState_STATE_GRANTED
	queued  = wirev1.ClaimState_STATE_QUEUED
	lost    = wirev1.ClaimState_STATE_LOST
	freed   = wirev1.ClaimState_STATE_RELEASED
	free    = wirev1.ClaimState_STATE_FREE
	held    = wirev1.ClaimState_STATE_HELD_BY_OTHER
)

var errCut = errors.New("cut by the test")

// next is the next push; none is a failure.
func (n *node) next() *meshv1.ClaimPush {
	n.t.Helper()
	select {
	case p := <-n.pushes:
		return p
	case <-time.After(time.Hour): // of the bubble's time
		n.t.Fatal("no push")
		return nil
	}
}

func TestAcquireQueueReleasePush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newDatabase(), "a", true)
		s.ready()
		e1, e2 := s.node("edge:1", 1), s.node("edge:2", 1)
		ann := is(t, e1.do(told("r/1", "ann", 7)), granted)
		if q := is(t, e2.do(told("r/1", "bob", 8)), queued); q.GetPosition() != 1 || q.GetHolder() != "ann" {
			t.Errorf("%v", q)
		}
		is(t, e1.do(op(release, "r/1", "ann", ann.GetToken())), freed)
		p := e2.next()
		if p.GetConn() != 8 || p.GetOwner() != "bob" || p.GetState().GetState() != granted || p.GetState().GetToken() <= ann.GetToken() {
			t.Errorf("%v after token %d", p, ann.GetToken())
		}
		refused(t, e1.do(op(renew, "r/1", "ann", ann.GetToken())), wirev1.Code_CODE_NOT_HELD)
		is(t, e2.do(op(renew, "r/1", "bob", p.GetState().GetToken())), granted)
	})
}

// Nothing is told before it is in the database, and nothing that may not be there is told as if it
// were.
func TestAnswersFollowTheCommit(t *testing.T) {
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprint("committed=", done), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				db := newDatabase()
				s := open(t, db, "a", true)
				s.ready()
				e := s.node("edge:1", 1)
				first := is(t, e.do(told("r/1", "ann", 7)), granted)
				entered, leave := make(chan struct{}), make(chan error)
				hook := func(what string, _ backend.Owner) error {
					if what != "commit" {
						return nil
					}
					db.set(nil, nil)
					close(entered)
					return <-leave
				}
				if done {
					db.set(nil, hook)
				} else {
					db.set(hook, nil)
				}
				c := e.begin(op(release, "r/1", "ann", first.GetToken()))[0]
				<-entered
				synctest.Wait()
				if len(c) > 0 {
					t.Fatalf("%v before the commit", <-c)
				}
				leave <- errCut
				r := <-c
				if r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
					t.Errorf("%v", r)
				}
				<-e.ended // so that it asks again for all
				if code.Of(e.err) != wirev1.Code_CODE_UNAVAILABLE {
					t.Error(e.err)
				}
				e = s.node("edge:1", 1)
				want := granted
				if done {
					want = free
				}
				is(t, e.do(op(check, "r/1", "ann", 0)), want)
				if st := is(t, e.do(told("r/1", "bob", 9)), map[bool]wirev1.ClaimState_State{true: granted, false: queued}[done]); done && st.GetToken() <= first.GetToken() {
					t.Errorf("token %d after %d", st.GetToken(), first.GetToken())
				}
			})
		})
	}
}

// A store that hung while another took its shards can't do anything any more, whatever it believes.
func TestFenced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		a := open(t, db, "a", true)
		a.ready()
		e := a.node("edge:1", 1)
		ann := is(t, e.do(told("r/1", "ann", 7)), granted)
		entered, leave := make(chan struct{}), make(chan struct{})
		db.set(func(what string, by backend.Owner) error {
			if by.StoreID == "a" && what == "commit" {
				select {
				case <-entered:
				default:
					close(entered)
				}
				<-leave
			}
			return nil
		}, nil)
		c := e.begin(op(release, "r/1", "ann", ann.GetToken()))[0]
		<-entered
		b := open(t, db, "b", true) // by force, since a has them
		b.ready()
		f := b.node("edge:2", 1)
		if q := is(t, f.do(told("r/1", "bob", 8)), queued); q.GetHolder() != "ann" {
			t.Errorf("%v", q)
		}
		a.lose()
		close(leave)
		refused(t, <-c, wirev1.Code_CODE_UNAVAILABLE)
		<-e.ended
		e = a.node("edge:1", 1)
		refused(t, e.do(op(check, "r/1", "ann", 0)), wirev1.Code_CODE_CONFLICT)
		f2 := b.node("edge:1", 1)
		is(t, f2.do(op(renew, "r/1", "ann", ann.GetToken())), granted)
		is(t, f2.do(op(release, "r/1", "ann", ann.GetToken())), freed)
		if p := f.next(); p.GetState().GetState() != granted || p.GetState().GetToken() <= ann.GetToken() {
			t.Errorf("%v", p)
		}
	})
}

// Shards that a store gives back are taken politely: the other one's run goes on.
func TestGivenShardsAreTakenWithoutForce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		a := open(t, db, "a", true)
		a.ready()
		e := a.node("edge:1", 1)
		ann := is(t, e.do(op(acquire, "r/1", "ann", 0)), granted)
		b := open(t, db, "b", false)
		b.ready()
		half := topic.Shards / 2
		b.own(0, half)
		a.mu.Lock()
		clear(a.owned[:half])
		a.mu.Unlock()
		pass(200 * time.Millisecond)
		b.ready()
		mine, other := a, b
		if topic.Shard("r/1") < half {
			mine, other = b, a
		}
		is(t, mine.node("edge:2", 1).do(op(renew, "r/1", "ann", ann.GetToken())), granted)
		refused(t, other.node("edge:3", 1).do(op(renew, "r/1", "ann", ann.GetToken())), wirev1.Code_CODE_CONFLICT)
		select {
		case <-e.ended:
			t.Error("the first store began anew")
		default:
		}
		b.stop()
		a.own(0, half)
		pass(100 * time.Millisecond)
		a.ready()
		<-e.ended // shards that were gone in between: it has to ask again
		is(t, a.node("edge:1", 1).do(op(renew, "r/1", "ann", ann.GetToken())), granted)
	})
}

// Force needs a log that is sure of its shards.
func TestNoForceUnlessSure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		a := open(t, db, "a", true)
		a.ready()
		e := a.node("edge:1", 1)
		b := open(t, db, "b", false)
		b.mu.Lock()
		b.unsure = errCut
		b.mu.Unlock()
		b.own(0, topic.Shards)
		pass(5 * time.Second)
		is(t, e.do(op(acquire, "r/1", "ann", 0)), granted)
		b.mu.Lock()
		b.unsure = nil
		b.mu.Unlock()
		pass(200 * time.Millisecond)
		b.ready()
	})
}

// An operation on a shard that is the store's, and not loaded yet, waits a little.
func TestShardNotReadSoFar(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		hold := make(chan struct{})
		var until time.Time
		db.set(func(what string, _ backend.Owner) error {
			if what == "take" && time.Now().Before(until) {
				return backend.ErrShardTaken
			}
			return nil
		}, nil)
		until = time.Now().Add(300 * time.Millisecond)
		s := open(t, db, "a", true)
		e := s.node("edge:1", 1)
		begun := time.Now()
		is(t, e.do(op(acquire, "r/1", "ann", 0)), granted)
		if waited := time.Since(begun); waited < 250*time.Millisecond {
			t.Errorf("granted after %s", waited)
		}
		close(hold)
		s.stop()

		until = time.Now().Add(10 * time.Second)
		s = open(t, db, "a", true)
		begun = time.Now()
		refused(t, s.node("edge:1", 1).do(op(acquire, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
		if waited := time.Since(begun); waited < 900*time.Millisecond || waited > 1500*time.Millisecond {
			t.Errorf("refused after %s", waited)
		}
	})
}

// Expiries are driven by the database's clock, and are committed when they are due.
func TestExpiry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		e.do(told("r/1", "ann", 7))
		bob := told("r/1", "bob", 8)
		e.do(bob)
		st := is(t, e.do(op(check, "r/1", "ann", 0)), granted)
		if left := time.Duration(st.GetExpiresAt()-db.now()) * time.Microsecond; left > 30*time.Second || left < 29*time.Second {
			t.Errorf("%s left of 30 s", left)
		}
		end := st.GetExpiresAt()
		if p := e.next(); p.GetConn() != 7 || p.GetState().GetState() != lost || p.GetState().GetCode() != wirev1.Code_CODE_EXPIRED {
			t.Errorf("%v", p)
		}
		if late := int64(db.now() - end); late < 0 || late > 5_000 {
			t.Errorf("%d µs late", late)
		}
		if p := e.next(); p.GetConn() != 8 || p.GetState().GetState() != granted {
			t.Errorf("%v", p)
		}
	})
}

// A node that doesn't take what it is told loses its stream, and holds nobody up.
func TestSlowNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newDatabase(), "a", true)
		s.ready()
		thaw := make(chan struct{})
		slow, quick := s.dial("edge:1", 1, thaw), s.node("edge:2", 1)
		slow.begin(told("r/slow", "ann", 7))
		const n = 1000
		name := func(i int) string { return "r/" + strings.Repeat("x", 200) + fmt.Sprint(i) }
		ops := make([]*meshv1.ClaimOp, n)
		for i := range ops {
			ops[i] = op(watch, name(i), "", 0)
		}
		slow.begin(ops...)
		for i := range 5 {
			ops := make([]*meshv1.ClaimOp, n)
			for k := range ops {
				ops[k] = op(acquire, name(k), fmt.Sprint(i, strings.Repeat("y", 200)), 0)
			}
			for _, c := range quick.begin(ops...) {
				<-c
			}
			pass(100 * time.Millisecond) // a resource's changes are told ten times a second
		}
		// It counts as gone already, whatever its connection does: the grace of 10 s begins after 5
		// s.
		is(t, quick.do(op(check, "r/slow", "", 0)), held)
		pass(16 * time.Second)
		is(t, quick.do(op(check, "r/slow", "", 0)), free)
		close(thaw)
		<-slow.ended
		if code.Of(slow.err) != wirev1.Code_CODE_SLOW_CONSUMER {
			t.Error(slow.err)
		}
	})
}

// What a node may have unanswered is bounded; it is told when to come back.
func TestOverload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		db.set(func(what string, _ backend.Owner) error {
			if what == "commit" {
				select {
				case entered <- struct{}{}:
				default:
				}
				<-leave
			}
			return nil
		}, nil)
		e := s.node("edge:1", 1)
		<-entered
		var all []chan *meshv1.ClaimResult
		for i := range 11 {
			ops := make([]*meshv1.ClaimOp, 1000)
			for k := range ops {
				ops[k] = op(acquire, fmt.Sprintf("r/%d/%d", i, k), "ann", 0)
			}
			all = append(all, e.begin(ops...)...)
		}
		if r := <-all[len(all)-1]; r.GetCode() != wirev1.Code_CODE_OVERLOADED || r.GetRetryAfterMs() == 0 {
			t.Errorf("%v", r)
		}
		close(leave)
		ok := 0
		for _, c := range all[:len(all)-1] {
			if r := <-c; r.GetCode() == wirev1.Code_CODE_OK {
				ok++
			}
		}
		if ok != 10_000 {
			t.Errorf("%d done", ok)
		}
		refused(t, e.do(op(acquire, "r/x\x00", "ann", 0)), wirev1.Code_CODE_INVALID_ARGUMENT)
		refused(t, e.do(op(acquire, "r/x", "ann\xff", 0)), wirev1.Code_CODE_INVALID_ARGUMENT)
	})
}

// A later stream of a node takes the place of the earlier one, which loses its connection there;
// one of an earlier life does not, whatever its number.
func TestStreamsOfANode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newDatabase(), "a", true)
		s.ready()
		before := s.node("edge:1", 9)
		is(t, before.do(op(check, "r/1", "", 0)), free)
		first := s.node("edge:1", 5)
		<-before.ended
		is(t, first.do(told("r/1", "ann", 7)), granted)
		second := s.node("edge:1", 5)
		<-first.ended
		is(t, second.do(told("r/1", "bob", 8)), queued)
		early := s.node("edge:1", 9)
		<-early.ended
		if code.Of(early.err) != wirev1.Code_CODE_CONFLICT || code.Of(first.err) != wirev1.Code_CODE_CONFLICT {
			t.Errorf("%v, %v", early.err, first.err)
		}
		if p := second.next(); p.GetState().GetState() != lost { // after 30 s
			t.Errorf("%v", p)
		}
		nobody := s.node("hub:1", 1)
		<-nobody.ended
		if code.Of(nobody.err) != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Error(nobody.err)
		}
		// Without a stream for 5 s bob's connection counts as ended: the grace of 10 s begins.
		is(t, second.do(op(renew, "r/1", "bob", second.next().GetState().GetToken())), granted)
		second.cancel()
		third := s.node("edge:2", 1)
		pass(14 * time.Second)
		is(t, third.do(op(check, "r/1", "", 0)), held)
		pass(2 * time.Second)
		is(t, third.do(op(check, "r/1", "", 0)), free)
	})
}

// A planned stop answers what is under way; the next store needs no force.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		entered, leave := make(chan struct{}), make(chan struct{})
		db.set(func(what string, _ backend.Owner) error {
			if what == "commit" {
				db.set(nil, nil)
				close(entered)
				<-leave
			}
			return nil
		}, nil)
		c := e.begin(op(acquire, "r/1", "ann", 0))[0]
		<-entered
		s.lane.Drain()
		refused(t, e.do(op(acquire, "r/2", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
		close(leave)
		is(t, <-c, granted)
		<-e.ended
		if code.Of(e.err) != wirev1.Code_CODE_DRAINING {
			t.Error(e.err)
		}
		late := s.node("edge:1", 1)
		<-late.ended
		if code.Of(late.err) != wirev1.Code_CODE_DRAINING {
			t.Error(late.err)
		}
		s.stop()
		begun := time.Now()
		b := open(t, db, "b", true)
		b.ready()
		is(t, b.node("edge:1", 1).do(op(acquire, "r/1", "bob", 0)), queued)
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("taken over after %s", took)
		}
	})
}

// With the database away operations are refused at once; it heals by itself.
func TestAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		is(t, s.node("edge:1", 1).do(op(acquire, "r/1", "ann", 0)), granted)
		s.mu.Lock()
		s.away = errCut
		s.mu.Unlock()
		db.set(func(string, backend.Owner) error { return errCut }, nil)
		pass(2 * time.Second) // the probe finds out
		if s.lane.Check() == nil {
			t.Error("the check sees nothing")
		}
		e := s.node("edge:1", 1)
		begun := time.Now()
		refused(t, e.do(op(check, "r/1", "ann", 0)), wirev1.Code_CODE_UNAVAILABLE)
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("refused after %s", waited)
		}
		db.set(nil, nil)
		s.mu.Lock()
		s.away = nil
		s.mu.Unlock()
		pass(2 * time.Second)
		s.ready()
		is(t, e.do(op(check, "r/1", "ann", 0)), granted)
	})
}

// What is prepared is granted after the call; a call that fails costs the place.
func TestPrepare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		s.rule(&pushmeshv1.ClaimPolicy{Prepare: &pushmeshv1.ClaimPrepare{Url: "http://x/", Deadline: durationpb.New(time.Second)}})
		e := s.node("edge:1", 1)
		is(t, e.do(told("r/1", "ann", 7)), queued)
		is(t, e.do(told("r/1", "bob", 8)), queued)
		job := <-s.jobs
		if job.Resource != "r/1" || job.Owner != "ann" || job.Token == 0 || job.How.Group != "r" {
			t.Errorf("%+v", job)
		}
		go job.Done(wirev1.Code_CODE_FORBIDDEN)
		for {
			if p := e.next(); p.GetConn() == 7 {
				if p.GetState().GetState() != lost || p.GetState().GetCode() != wirev1.Code_CODE_UNAVAILABLE {
					t.Errorf("%v", p)
				}
				break
			}
		}
		job = <-s.jobs
		go job.Done(wirev1.Code_CODE_OK)
		for {
			if p := e.next(); p.GetState().GetState() == granted {
				if p.GetOwner() != "bob" || p.GetState().GetToken() != job.Token {
					t.Errorf("%v, want token %d", p, job.Token)
				}
				break
			}
		}
		// What comes of calls of an earlier run is nothing to a later one.
		is(t, e.do(told("r/2", "ann", 7)), queued)
		job = <-s.jobs
		db.set(nil, func(what string, _ backend.Owner) error { db.set(nil, nil); return errCut })
		<-e.ended
		<-job.Context.Done()
		job.Done(wirev1.Code_CODE_OK)
		again := <-s.jobs
		if again.Owner != "ann" || again.Token <= job.Token {
			t.Errorf("%+v after %+v", again, job)
		}
	})
}

// A change of the policy is seen by resources that are in use.
func TestPolicyChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newDatabase(), "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		is(t, e.do(told("r/1", "ann", 7)), granted)
		is(t, e.do(told("r/1", "bob", 8)), queued)
		s.rule(&pushmeshv1.ClaimPolicy{Holders: 2})
		if p := e.next(); p.GetConn() != 8 || p.GetState().GetState() != granted {
			t.Errorf("%v", p)
		}
	})
}

// While many shards are read one after the other, those that are there are served.
func TestTakeoverInParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		db.set(func(what string, _ backend.Owner) error {
			if what == "take" {
				pass(50 * time.Millisecond)
			}
			return nil
		}, nil)
		s := open(t, db, "a", true)
		e := s.node("edge:1", 1)
		served, slowest := 0, time.Duration(0)
		for i := 0; s.lane.Check() != nil; i++ {
			begun := time.Now()
			name := fmt.Sprint("r/", i)
			for topic.Shard(name) >= 64 {
				name += "x"
			}
			is(t, e.do(op(acquire, name, "ann", 0)), granted)
			served, slowest = served+1, max(slowest, time.Since(begun))
		}
		if served < 3 || slowest > 120*time.Millisecond {
			t.Errorf("%d served meanwhile, the slowest in %s", served, slowest)
		}
	})
}

// What was granted as the store went, and perhaps told to nobody, can be taken up at the next one.
func TestOfferOutlivesItsStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		ann := is(t, e.do(told("r/1", "ann", 7)), granted)
		is(t, e.do(told("r/1", "bob", 8)), queued)
		db.set(nil, func(what string, _ backend.Owner) error {
			if what != "commit" {
				return nil
			}
			db.set(func(string, backend.Owner) error { return errCut }, nil)
			return errCut
		})
		refused(t, e.do(op(release, "r/1", "ann", ann.GetToken())), wirev1.Code_CODE_UNAVAILABLE)
		<-e.ended
		pass(10 * time.Second)
		if len(e.pushes) > 0 {
			t.Fatalf("%v", <-e.pushes)
		}
		db.set(nil, nil)
		pass(5 * time.Second)
		s.ready()
		bob := is(t, s.node("edge:1", 1).do(op(check, "r/1", "bob", 0)), granted)
		if bob.GetToken() <= ann.GetToken() {
			t.Errorf("token %d after %d", bob.GetToken(), ann.GetToken())
		}
	})
}
