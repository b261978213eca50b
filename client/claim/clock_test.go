package claim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/edgetest"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// seldom asks for Pings every six weeks.
var seldom = &wirev1.Welcome{Version: 1, HeartbeatMs: 4_000_000_000}

// inClaims runs a test in a bubble, with a subscriber that is connected.
func inClaims(t *testing.T, f func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newPipeEdge(t)
		s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Dial: e.Dial, Addrs: []string{"edge"}, MinBackoff: 100 * time.Millisecond})
		c := e.welcomeWith(seldom)
		f(t, s, e, c)
	})
}

// take claims a resource, whose ACQUIRE is answered so.
func (c *edgeConn) take(s *pushmesh.Subscriber, resource string, st *wirev1.ClaimState, opts ...Option) *Place {
	c.T.Helper()
	got := claiming(s, resource, opts...)
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), st)
	x := <-got
	if x.err != nil {
		c.T.Fatal(x.err)
	}
	return x.c
}

// quiet fails where a frame comes within a time.
func (c *edgeConn) quiet(d time.Duration) {
	c.T.Helper()
	began := time.Now()
	_ = c.Net.SetReadDeadline(began.Add(d))
	for {
		ft, _, err := wire.Read(c.Reader, nil, wire.MaxBody)
		if err != nil {
			return
		}
		if ft != wirev1.FrameType_FRAME_TYPE_PING {
			c.T.Fatalf("after %v there came a frame of type %v", time.Since(began), ft)
		}
	}
}

// A hold counts from before it was asked for, is renewed when a third of it has passed, and is over
// for its holder when it may be over for the mesh: not a moment later, or two would hold it, and
// not before, or a renewal that is late by a moment costs the place.
func TestAHoldByTheClock(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
		got, asked := claiming(s, "seat/1"), time.Now()
		m := c.claim(wirev1.Claim_OP_ACQUIRE)
		pass(time.Second)
		c.state(m, grantedFor(7, 9*time.Second))
		x := (<-got).c
		for range 10 {
			if d := x.Deadline().Sub(asked); d != 9*time.Second || !x.Held() {
				t.Fatalf("held %v, until %v after it was asked for, the mesh said 9 s", x.Held(), d)
			}
			m = c.claim(wirev1.Claim_OP_RENEW)
			if d := time.Since(asked); d != 3*time.Second || m.GetToken() != 7 {
				t.Fatalf("%v came %v after the last one", m, d)
			}
			asked = time.Now()
			pass(500 * time.Millisecond)
			c.state(m, grantedFor(7, 9*time.Second))
			synctest.Wait()
		}
		if m = c.claim(wirev1.Claim_OP_RENEW); time.Since(asked) != 3*time.Second {
			t.Fatal(m)
		}
		pass(6*time.Second - 1) // it is not answered
		if !x.Held() || x.Err() != nil {
			t.Error("lost before the mesh may have given it to another")
		}
		<-x.Lost()
		var e *pushmesh.Error
		if d := time.Since(asked); d != 9*time.Second || x.Held() || !x.Deadline().IsZero() || !errors.As(x.Err(), &e) || e.Code != pushmesh.CodeUnavailable || !e.Unknown {
			t.Errorf("after %v held %v, until %v: %v", d, x.Held(), x.Deadline(), x.Err())
		}
		c.state(m, grantedFor(7, time.Hour)) // too late
		synctest.Wait()
		if x.Held() {
			t.Error("held again")
		}
		c.quiet(time.Hour)
	})
}

// A hold shorter than what lies between renewals at least is renewed once where it can be, and over
// in time where it can't.
func TestShortHolds(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
		began := time.Now()
		x := c.take(s, "seat/1", grantedFor(1, 90*time.Millisecond))
		m := c.claim(wirev1.Claim_OP_RENEW)
		if d := time.Since(began); d != minRenewal {
			t.Errorf("renewed after %v", d)
		}
		c.state(m, grantedFor(1, 30*time.Millisecond))
		<-x.Lost()
		if d := time.Since(began); d != minRenewal+30*time.Millisecond {
			t.Errorf("lost after %v", d)
		}
	})
}

// inTurn reports whether a try came when it should have: up to a quarter later than the mesh said,
// or in half of a time to all of it that is longer with each try.
func inTurn(try int, asked, after time.Duration) bool {
	own := 100 * time.Millisecond << try
	return after >= max(asked, own/2) && after <= max(asked*5/4, own)
}

// However often the renewal of a hold is refused, it is tried again for as long as the hold lasts:
// the pauses that grow with each refusal don't pass by its end.
func TestRenewalsThatAreRefusedOften(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
		asked := time.Now()
		x := c.take(s, "seat/1", grantedFor(1, 3*time.Second))
		tries := 0
		for left := 3 * time.Second; left > 300*time.Millisecond; left = 3*time.Second - time.Since(asked) {
			began := time.Now()
			m := c.claim(wirev1.Claim_OP_RENEW)
			if d := time.Since(began); tries > 0 && d > max(left/3, 100*time.Millisecond) {
				t.Fatalf("asked again %v later, when the hold had %v left", d, left)
			}
			tries++
			c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE})
		}
		if tries < 5 {
			t.Errorf("tried %d times", tries)
		}
		c.state(c.claim(wirev1.Claim_OP_RENEW), grantedFor(1, 9*time.Second))
		synctest.Wait()
		if !x.Held() || x.Err() != nil {
			t.Error(x.Err())
		}
	})
}

// What is refused for now is asked again when the mesh said, or after a while, and never later than
// the hold lasts.
func TestRefusedRenewals(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		x := c.take(s, "seat/1", grantedFor(1, 9*time.Second), WithTTL(9*time.Second))
		m := c.claim(wirev1.Claim_OP_RENEW)
		for try, after := range []time.Duration{time.Second, 0} {
			began := time.Now()
			c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: uint32(after.Milliseconds())})
			m = c.claim(wirev1.Claim_OP_RENEW)
			if d := time.Since(began); !inTurn(try, after, d) || m.GetTtlMs() != 9000 || !x.Held() {
				t.Errorf("told to ask again after %v, it did after %v: %v", after, d, m)
			}
		}
		c.Close() // whose answer it takes with it: the next connection asks at once
		lost := time.Now()
		c = e.welcome()
		back := time.Now()
		if m = c.claim(wirev1.Claim_OP_RENEW); time.Since(back) != 0 || back.Sub(lost) > 100*time.Millisecond {
			t.Errorf("asked %v after the new connection", time.Since(back))
		}
		asked := time.Now()
		c.state(m, grantedFor(1, 9*time.Second))
		m = c.claim(wirev1.Claim_OP_RENEW)
		c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, RetryAfterMs: 3_600_000})
		<-x.Lost()
		if d := time.Since(asked); d != 9*time.Second {
			t.Errorf("lost after %v", d)
		}
	})
}

// Who waits asks once on each connection, and nothing while there is none.
func TestAPlaceInTheLineIsAskedForOnce(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		x := c.take(s, "seat/1", &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 3})
		c.quiet(time.Hour)
		c.Close()
		c = e.welcomeWith(seldom)
		m := c.claim(wirev1.Claim_OP_ACQUIRE)
		// under the id of the request: the answer
		c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_LOST, Code: wirev1.Code_CODE_EXPIRED})
		<-x.Lost()
		if x.Err() == nil || x.Wait(t.Context()) == nil {
			t.Error("a place that is gone is waited for")
		}
	})
}

// What a claim hears of itself. Words of a place before this one, of others' holds and of who else
// waits change nothing; a hold under another token is another process's.
func TestWhatAClaimIsTold(t *testing.T) {
	told := func(state wirev1.ClaimState_State, token uint64, position uint32) *wirev1.ClaimState {
		return &wirev1.ClaimState{State: state, Token: token, Position: position, Code: wirev1.Code_CODE_EXPIRED, ExpiresInMs: 1000}
	}
	for name, x := range map[string]struct {
		waits bool
		st    *wirev1.ClaimState
		ends  pushmesh.Code // OK: it goes on
		line  int
	}{
		"queued behind its hold":      {false, told(wirev1.ClaimState_STATE_QUEUED, 0, 4), 0, 0},
		"its own hold":                {false, told(wirev1.ClaimState_STATE_GRANTED, 7, 0), 0, 0},
		"a hold of another process":   {false, told(wirev1.ClaimState_STATE_GRANTED, 8, 0), pushmesh.CodeNotHeld, 0},
		"an earlier hold lost":        {false, told(wirev1.ClaimState_STATE_LOST, 6, 0), 0, 0},
		"an earlier hold released":    {false, told(wirev1.ClaimState_STATE_RELEASED, 6, 0), 0, 0},
		"its hold lost":               {false, told(wirev1.ClaimState_STATE_LOST, 7, 0), pushmesh.CodeExpired, 0},
		"its hold released elsewhere": {false, told(wirev1.ClaimState_STATE_RELEASED, 7, 0), pushmesh.CodeNotHeld, 0},
		"lost, of no token":           {false, told(wirev1.ClaimState_STATE_LOST, 0, 0), pushmesh.CodeExpired, 0},
		"free":                        {false, told(wirev1.ClaimState_STATE_FREE, 0, 0), 0, 0},
		"held by another":             {true, told(wirev1.ClaimState_STATE_HELD_BY_OTHER, 9, 0), 0, 3},
		"further in the line":         {true, told(wirev1.ClaimState_STATE_QUEUED, 0, 2), 0, 2},
		"its place lost":              {true, told(wirev1.ClaimState_STATE_LOST, 0, 0), pushmesh.CodeExpired, 3},
		"its place lost, of a token":  {true, told(wirev1.ClaimState_STATE_LOST, 9, 0), pushmesh.CodeExpired, 3},
	} {
		inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
			var moved []int
			as, line := grantedFor(7, time.Hour), 0
			if x.waits {
				as, line = &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 3}, 3
			}
			claim := c.take(s, "seat/1", as, OnPosition(func(at int) { moved = append(moved, at) }))
			c.state(&wirev1.Claim{Resource: "seat/1"}, x.st)
			synctest.Wait()
			ended := claim.Err() != nil
			if ended != (x.ends != 0) || ended && pushmesh.CodeOf(claim.Err()) != x.ends || claim.Position() != x.line || !ended && claim.Held() == x.waits {
				t.Errorf("%s: ended with %v, at %d, held %v", name, claim.Err(), claim.Position(), claim.Held())
			}
			if n := len(moved); x.line != line && (n == 0 || moved[n-1] != x.line) || x.line == line && x.waits != (n == 1) {
				t.Errorf("%s: positions %v", name, moved)
			}
			if !ended {
				c.quiet(time.Second)
			}
		})
	}
}

// Answers to a renewal that are no grant end the claim: it has no place to wait in.
func TestARenewalThatIsNotGranted(t *testing.T) {
	for _, st := range []wirev1.ClaimState_State{wirev1.ClaimState_STATE_QUEUED, wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER} {
		inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
			x := c.take(s, "seat/1", grantedFor(7, 3*time.Second))
			m := c.claim(wirev1.Claim_OP_RENEW)
			c.state(m, &wirev1.ClaimState{State: st, Position: 1})
			<-x.Lost()
			if pushmesh.CodeOf(x.Err()) != pushmesh.CodeNotHeld {
				t.Errorf("%v: %v", st, x.Err())
			}
		})
	}
}

// What was told of the last connection's place is not taken for this one's: until it is asked for
// again, nothing is known.
func TestATaleOfTheLastConnection(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		x := c.take(s, "seat/1", &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 3})
		c.Close()
		c = e.welcome()
		m := c.claim(wirev1.Claim_OP_ACQUIRE)
		c.state(&wirev1.Claim{Resource: "seat/1"}, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_LOST, Code: wirev1.Code_CODE_EXPIRED})
		synctest.Wait()
		if x.Err() != nil {
			t.Fatal(x.Err())
		}
		c.state(m, grantedFor(1, time.Hour))
		if err := x.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Whose wait for an answer ends hears why there was none, and leaves the line.
func TestAClaimGivenUp(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := failed(func(context.Context) error { _, err := Join(ctx, s, "seat/1"); return err })
		c.refuseClaim(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 60_000})
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || pushmesh.CodeOf(err) != pushmesh.CodeOverloaded {
			t.Errorf("given up with %v", err)
		}
		c.state(c.claim(wirev1.Claim_OP_LEAVE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
		c.quiet(time.Hour)
		c.Close() // without a connection nothing is asked, then or later
		synctest.Wait()
		short, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if _, err := Join(short, s, "seat/2"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c = e.welcomeWith(seldom)
		c.quiet(time.Minute)
		if got := claiming(s, "seat/2"); got == nil {
			t.Fatal()
		}
		c.claim(wirev1.Claim_OP_ACQUIRE) // it may be claimed again
	})
}

// A place that was lost already is not left again; one that is released is released once.
func TestLeavingTwice(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
		x := c.take(s, "seat/1", &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 3})
		// a place in the line: it is left
		left := failed(func(ctx context.Context) error { return x.Release(ctx) })
		// it was granted meanwhile
		c.state(c.claim(wirev1.Claim_OP_LEAVE), grantedFor(5, time.Hour))
		if m := c.claim(wirev1.Claim_OP_RELEASE); m.GetToken() != 5 {
			t.Error(m)
		} else {
			c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
		if err := errors.Join(x.Release(t.Context()), x.Leave(t.Context())); err != nil {
			t.Error(err)
		}
		c.quiet(time.Hour)
	})
}

// A request that was answered "not now" is asked again in time; what was not sent when its caller
// went is not sent later; and whether an earlier one may have been done decides what "not held"
// means for a release.
func TestRequestsAboutClaims(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		done := failed(func(ctx context.Context) error { _, err := Check(ctx, s, "seat/1"); return err })
		m := c.claim(wirev1.Claim_OP_CHECK)
		for try, after := range []time.Duration{3 * time.Second, 0} {
			began := time.Now()
			c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: uint32(after.Milliseconds())})
			if m = c.claim(wirev1.Claim_OP_CHECK); !inTurn(try, after, time.Since(began)) {
				t.Errorf("told to ask again after %v, it did after %v", after, time.Since(began))
			}
		}
		c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
		if err := <-done; pushmesh.CodeOf(err) != pushmesh.CodeForbidden {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done = failed(func(context.Context) error { _, err := Check(ctx, s, "seat/1"); return err })
		c.refuseClaim(c.claim(wirev1.Claim_OP_CHECK), &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 60_000})
		began := time.Now()
		if err := <-done; pushmesh.CodeOf(err) != pushmesh.CodeOverloaded || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, want the mesh's word", time.Since(began), err)
		}
		for _, refusal := range []pushmesh.Code{pushmesh.CodeUnavailable, pushmesh.CodeOverloaded} {
			x := c.take(s, "seat/1", grantedFor(5, time.Hour))
			done := failed(func(ctx context.Context) error { return x.Release(ctx) })
			c.refuseClaim(c.claim(wirev1.Claim_OP_RELEASE), &wirev1.Error{Code: wirev1.Code(refusal)})
			c.state(c.claim(wirev1.Claim_OP_RELEASE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE, Code: wirev1.Code_CODE_NOT_HELD})
			if err := <-done; refusal == pushmesh.CodeUnavailable != (err == nil) {
				t.Errorf("released after %v: %v", refusal, err)
			}
		}
		c.Close()
		synctest.Wait()
		short, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if _, err := Check(short, s, "seat/1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c = e.welcomeWith(seldom)
		c.quiet(time.Minute)
	})
}

// A watch is asked for again when the mesh said; refused for good it ends with the reason; stopped,
// it tells nothing more, and the edge is told so, where there is one.
func TestWatchesByTheClock(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, e *fakeEdge, c *edgeConn) {
		told := 0
		watch := func() chan error {
			return failed(func(ctx context.Context) error {
				_, err := Watch(ctx, s, "seat/1", func(Info) { told++ })
				return err
			})
		}
		done := watch()
		m := c.claim(wirev1.Claim_OP_WATCH)
		for try, after := range []time.Duration{3 * time.Second, 0} {
			began := time.Now()
			c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: uint32(after.Milliseconds())})
			if m = c.claim(wirev1.Claim_OP_WATCH); !inTurn(try, after, time.Since(began)) {
				t.Errorf("told to ask again after %v, it did after %v", after, time.Since(began))
			}
		}
		// another's answer, before the watch is one
		c.state(&wirev1.Claim{Resource: "seat/1"}, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
		synctest.Wait()
		if told != 0 {
			t.Error("told before it watched")
		}
		c.Close()
		c = e.welcomeWith(seldom)
		m = c.claim(wirev1.Claim_OP_WATCH)
		c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
		if err := <-done; pushmesh.CodeOf(err) != pushmesh.CodeForbidden {
			t.Error(err)
		}
		c.quiet(time.Hour)
		r := roomOf(s)
		r.Lock()
		left := len(r.watches)
		r.Unlock()
		if left != 0 {
			t.Errorf("%d watches are left", left)
		}
		got := make(chan *Watcher, 1)
		go func() {
			w, err := Watch(context.Background(), s, "seat/1", func(Info) { told++ })
			if err != nil {
				t.Error(err)
			}
			got <- w
		}()
		c.state(c.claim(wirev1.Claim_OP_WATCH), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
		w := <-got
		synctest.Wait()
		w.Stop()
		<-w.Done()
		if m := c.claim(wirev1.Claim_OP_LEAVE); m.GetResource() != "seat/1" || w.Err() != nil || told != 1 {
			t.Errorf("%v, ended with %v, told %d times", m, w.Err(), told)
		}
		w.Stop()
		c.quiet(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Watch(ctx, s, "seat/1", func(Info) {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.claim(wirev1.Claim_OP_WATCH)
		c.claim(wirev1.Claim_OP_LEAVE)
		c.Close()
		synctest.Wait()
		short, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if _, err := Watch(short, s, "seat/1", func(Info) {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		e.welcomeWith(seldom).quiet(time.Minute) // what nobody waits for any more is not asked for
		_ = s.Close(context.Background())
		if _, err := Watch(t.Context(), s, "seat/1", func(Info) {}); !errors.Is(err, pushmesh.ErrClosed) {
			t.Error(err)
		}
		if _, err := Check(t.Context(), s, "seat/1"); !errors.Is(err, pushmesh.ErrClosed) {
			t.Error(err)
		}
	})
}

// A watch beside a claim outlives the claim's end, and one that was stopped beside a claim is taken
// back with it, once: unless it was begun again.
func TestAWatchBesideAClaim(t *testing.T) {
	inClaims(t, func(t *testing.T, s *pushmesh.Subscriber, _ *fakeEdge, c *edgeConn) {
		watch := func() *Watcher {
			got := make(chan *Watcher, 1)
			go func() {
				w, err := Watch(context.Background(), s, "seat/1", func(Info) {})
				if err != nil {
					t.Error(err)
				}
				got <- w
			}()
			c.state(c.claim(wirev1.Claim_OP_WATCH), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
			return <-got
		}
		for _, again := range []bool{false, true} {
			w := watch()
			x := c.take(s, "seat/1", grantedFor(5, 24*time.Hour))
			w.Stop()
			if again {
				w = watch()
			}
			released := failed(func(ctx context.Context) error { return x.Release(ctx) })
			if !again {
				c.state(c.claim(wirev1.Claim_OP_LEAVE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
			}
			c.state(c.claim(wirev1.Claim_OP_RELEASE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
			if err := <-released; err != nil {
				t.Error(err)
			}
			c.quiet(time.Minute)
			if again {
				w.Stop()
				c.claim(wirev1.Claim_OP_LEAVE)
			}
		}
	})
}
