package pushmesh

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claim reads a Claim of an op.
func (c *edgeConn) claim(op wirev1.Claim_Op) *wirev1.Claim {
	c.t.Helper()
	m := &wirev1.Claim{}
	c.expect(wirev1.FrameType_FRAME_TYPE_CLAIM, m)
	if m.GetOp() != op || m.GetId() == 0 {
		c.t.Fatalf("asked %v, want %v", m, op)
	}
	return m
}

// state answers m, or tells under its id.
func (c *edgeConn) state(m *wirev1.Claim, st *wirev1.ClaimState) {
	c.t.Helper()
	st.Id, st.Resource = m.GetId(), m.GetResource()
	c.send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, st)
}

func (c *edgeConn) refuseClaim(m *wirev1.Claim, e *wirev1.Error) {
	c.t.Helper()
	e.Ref = m.GetId()
	c.send(wirev1.FrameType_FRAME_TYPE_ERROR, e)
}

func grantedFor(token uint64, d time.Duration) *wirev1.ClaimState {
	return &wirev1.ClaimState{State: ClaimGranted, Token: token, ExpiresInMs: uint32(d.Milliseconds())}
}

type claimed struct {
	c   *Claim
	err error
}

func claiming(s *Subscriber, resource string, opts ...ClaimOption) chan claimed {
	done := make(chan claimed, 1)
	go func() {
		c, err := s.Claim(context.Background(), resource, opts...)
		done <- claimed{c, err}
	}()
	return done
}

func soon(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal(what, " never came")
	}
}

func failed(f func(context.Context) error) chan error {
	done := make(chan error, 1)
	go func() { done <- f(context.Background()) }()
	return done
}

func TestClaimIsHeldRenewedAndReleased(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := claiming(s, "seat/1", WithTTL(900*time.Millisecond), WithPriority(2), WithMaxWait(time.Minute))
	c := e.welcome()
	m := c.claim(wirev1.Claim_OP_ACQUIRE)
	if m.GetResource() != "seat/1" || m.GetTtlMs() != 900 || m.GetPriority() != 2 || m.GetWaitMs() != 60_000 || m.GetNoWait() {
		t.Fatal(m)
	}
	received := time.Now()
	c.state(m, grantedFor(7, patience))
	x := <-got
	if x.err != nil || !x.c.Held() || x.c.Token() != 7 || x.c.Position() != 0 || x.c.Wait(t.Context()) != nil {
		t.Fatalf("%v, held %v, token %d", x.err, x.c.Held(), x.c.Token())
	}
	if late := x.c.Deadline().Sub(received); late > patience {
		t.Fatalf("held for %v from when the edge had the request on, the mesh said %v", late, patience)
	}
	if _, err := s.Claim(t.Context(), "seat/1"); CodeOf(err) != wirev1.Code_CODE_ALREADY_EXISTS {
		t.Fatalf("claimed twice: %v", err)
	}
	released := failed(func(ctx context.Context) error { return x.c.Release(ctx, WithSuccessor("client:bob")) })
	soon(t, "the end", x.c.Lost())
	m = c.claim(wirev1.Claim_OP_RELEASE)
	if m.GetToken() != 7 || m.GetSuccessor() != "client:bob" || x.c.Held() || x.c.Err() != nil {
		t.Fatal(m, x.c.Err())
	}
	c.state(m, &wirev1.ClaimState{State: ClaimReleased})
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	got = claiming(s, "seat/1")
	m = c.claim(wirev1.Claim_OP_ACQUIRE)
	c.state(m, grantedFor(8, 900*time.Millisecond))
	x = <-got
	before := x.c.Deadline()
	m = c.claim(wirev1.Claim_OP_RENEW)
	if m.GetToken() != 8 || x.err != nil {
		t.Fatal(m, x.err)
	}
	c.state(m, grantedFor(8, patience))
	checked := failed(func(ctx context.Context) error { _, err := s.CheckClaim(ctx, "seat/1"); return err })
	c.state(c.claim(wirev1.Claim_OP_CHECK), grantedFor(8, patience)) // behind the other answer
	if err := <-checked; err != nil || !x.c.Deadline().After(before) {
		t.Fatalf("%v, held until %v, before the renewal until %v", err, x.c.Deadline(), before)
	}
}

func TestClaimWaitsAndTakesTheOfferUp(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	positions := make(chan int, 10)
	got := claiming(s, "seat/1", OnPosition(func(at int) { positions <- at }))
	c := e.welcome()
	acquire := c.claim(wirev1.Claim_OP_ACQUIRE)
	c.state(acquire, &wirev1.ClaimState{State: ClaimQueued, Position: 3})
	x := <-got
	if x.err != nil || x.c.Held() || x.c.Position() != 3 || x.c.Token() != 0 {
		t.Fatalf("%v, held %v, position %d", x.err, x.c.Held(), x.c.Position())
	}
	c.state(acquire, &wirev1.ClaimState{State: ClaimQueued, Position: 3}) // told again
	c.state(acquire, &wirev1.ClaimState{State: ClaimQueued, Position: 1})
	if a, b := <-positions, <-positions; a != 3 || b != 1 {
		t.Fatalf("positions %d, %d", a, b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := x.c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	c.state(acquire, grantedFor(9, patience))
	renew := c.claim(wirev1.Claim_OP_RENEW)
	if renew.GetToken() != 9 || x.c.Held() {
		t.Fatalf("asked %v, held %v before it was taken up", renew, x.c.Held())
	}
	c.state(renew, grantedFor(9, patience))
	if err := x.c.Wait(t.Context()); err != nil || !x.c.Held() || x.c.Token() != 9 || x.c.Position() != 0 {
		t.Fatal(err)
	}
	c.state(acquire, &wirev1.ClaimState{State: ClaimLost, Token: 8}) // of a hold before
	c.state(acquire, &wirev1.ClaimState{State: ClaimLost, Token: 9, Code: wirev1.Code_CODE_EXPIRED})
	soon(t, "LOST", x.c.Lost())
	if CodeOf(x.c.Err()) != wirev1.Code_CODE_EXPIRED || x.c.Held() {
		t.Fatal(x.c.Err())
	}
	if err := x.c.Release(t.Context()); CodeOf(err) != wirev1.Code_CODE_EXPIRED {
		t.Fatalf("released what was lost: %v", err)
	}
}

// Whoever can't renew knows that the hold is over when it may be over, not later.
func TestClaimThatCanNotBeRenewedIsLost(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := claiming(s, "seat/1")
	c := e.welcome()
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(1, 600*time.Millisecond))
	x := <-got
	c.refuseClaim(c.claim(wirev1.Claim_OP_RENEW), &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, RetryAfterMs: 1})
	c.claim(wirev1.Claim_OP_RENEW) // never answered
	soon(t, "the end", x.c.Lost())
	if x.c.Held() || CodeOf(x.c.Err()) != wirev1.Code_CODE_UNAVAILABLE {
		t.Fatal(x.c.Err())
	}
	got = claiming(s, "seat/2")
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(1, 90*time.Millisecond))
	x = <-got
	c.refuseClaim(c.claim(wirev1.Claim_OP_RENEW), &wirev1.Error{Code: wirev1.Code_CODE_NOT_HELD})
	soon(t, "the end", x.c.Lost())
}

func TestClaimsAreTakenUpAgain(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome()
	take := func(resource string, st *wirev1.ClaimState) *Claim {
		got := claiming(s, resource)
		c.state(c.claim(wirev1.Claim_OP_ACQUIRE), st)
		x := <-got
		if x.err != nil {
			t.Fatal(x.err)
		}
		return x.c
	}
	holds, waits, gone := take("a", grantedFor(5, patience)), take("b", &wirev1.ClaimState{State: ClaimQueued, Position: 2}), take("c", grantedFor(6, patience))
	c.close()
	c = e.welcome()
	for range 3 {
		m := &wirev1.Claim{}
		c.expect(wirev1.FrameType_FRAME_TYPE_CLAIM, m)
		switch {
		case m.GetResource() == "a" && m.GetOp() == wirev1.Claim_OP_RENEW && m.GetToken() == 5:
			c.state(m, grantedFor(5, patience))
		case m.GetResource() == "b" && m.GetOp() == wirev1.Claim_OP_ACQUIRE:
			c.state(m, &wirev1.ClaimState{State: ClaimQueued, Position: 1})
		case m.GetResource() == "c" && m.GetOp() == wirev1.Claim_OP_RENEW && m.GetToken() == 6:
			c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_NOT_HELD})
		default:
			t.Fatal(m)
		}
	}
	soon(t, "the end of what was lost", gone.Lost())
	if CodeOf(gone.Err()) != wirev1.Code_CODE_NOT_HELD || !holds.Held() || holds.Token() != 5 {
		t.Fatal(gone.Err(), holds.Held(), holds.Token())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the end with the subscriber", waits.Lost())
	if !errors.Is(waits.Wait(t.Context()), ErrClosed) || waits.Position() != 1 {
		t.Fatal(waits.Wait(t.Context()), waits.Position())
	}
	if _, err := s.Claim(t.Context(), "a"); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestClaimRefused(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	got := claiming(s, "seat/1")
	c := e.welcome()
	c.refuseClaim(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
	if x := <-got; CodeOf(x.err) != wirev1.Code_CODE_FORBIDDEN || x.c != nil {
		t.Fatal(x)
	}
	got = claiming(s, "seat/1", WithoutWaiting())
	m := c.claim(wirev1.Claim_OP_ACQUIRE)
	if !m.GetNoWait() {
		t.Fatal(m)
	}
	c.state(m, &wirev1.ClaimState{State: ClaimHeldByOther, Holder: "client:bob"})
	if x := <-got; !errors.Is(x.err, ErrHeldByOther) {
		t.Fatal(x.err)
	}
	got = claiming(s, "seat/1") // is tried again where that can help
	c.refuseClaim(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 1})
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(1, patience))
	if x := <-got; x.err != nil {
		t.Fatal(x.err)
	}
	if _, err := s.Claim(t.Context(), "\xff"); CodeOf(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := failed(func(context.Context) error { _, err := s.Acquire(ctx, "seat/2"); return err })
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.ClaimState{State: ClaimQueued, Position: 1})
	cancel()
	if err := <-late; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c.state(c.claim(wirev1.Claim_OP_LEAVE), grantedFor(4, patience)) // it was granted meanwhile
	if m := c.claim(wirev1.Claim_OP_RELEASE); m.GetToken() != 4 {
		t.Fatal(m)
	}
}

func TestReleaseThroughABreak(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	c := e.welcome()
	for _, broken := range []bool{true, false} {
		got := claiming(s, "seat/1")
		c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(5, patience))
		x := <-got
		done := failed(func(ctx context.Context) error { return x.c.Leave(ctx) })
		m := c.claim(wirev1.Claim_OP_RELEASE)
		if broken { // it may have been done: that the token is not good any more is no surprise
			c.close()
			c = e.welcome()
			m = c.claim(wirev1.Claim_OP_RELEASE)
		}
		c.state(m, &wirev1.ClaimState{State: ClaimFree, Code: wirev1.Code_CODE_NOT_HELD})
		if err := <-done; broken != (err == nil) || !broken && CodeOf(err) != wirev1.Code_CODE_NOT_HELD {
			t.Fatalf("broken %v: %v", broken, err)
		}
	}
}

func TestClaimWindow(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	var all []chan claimed
	for i := range claimWindow + 1 {
		all = append(all, claiming(s, "seat/"+string(rune('a'+i))))
	}
	c := e.welcome()
	var asked []*wirev1.Claim
	for range claimWindow {
		asked = append(asked, c.claim(wirev1.Claim_OP_ACQUIRE))
	}
	c.state(asked[0], grantedFor(1, patience))
	asked = append(asked, c.claim(wirev1.Claim_OP_ACQUIRE)) // there is room now
	for _, m := range asked[1:] {
		c.state(m, grantedFor(1, patience))
	}
	for _, got := range all {
		if x := <-got; x.err != nil {
			t.Fatal(x.err)
		}
	}
}

func TestWatchClaim(t *testing.T) {
	e := newFakeEdge(t)
	s := newTestSubscriber(t, SubscriberConfig{Addrs: []string{e.addr()}})
	told := make(chan ClaimInfo, 10)
	watching := make(chan *ClaimWatch, 1)
	go func() {
		w, _ := s.WatchClaim(context.Background(), "seat/1", func(i ClaimInfo) { told <- i })
		watching <- w
	}()
	c := e.welcome()
	m := c.claim(wirev1.Claim_OP_WATCH)
	c.state(m, &wirev1.ClaimState{State: ClaimHeldByOther, Holder: "client:bob", Holding: 1, Waiting: 4, ExpiresInMs: 1500})
	w := <-watching
	if got, want := <-told, (ClaimInfo{Resource: "seat/1", State: ClaimHeldByOther, Holder: "client:bob", Holding: 1, Waiting: 4, ExpiresIn: 1500 * time.Millisecond}); got != want {
		t.Fatalf("told %+v, want %+v", got, want)
	}
	if _, err := s.WatchClaim(t.Context(), "seat/1", func(ClaimInfo) {}); CodeOf(err) != wirev1.Code_CODE_ALREADY_EXISTS {
		t.Fatal(err)
	}
	c.state(m, &wirev1.ClaimState{State: ClaimFree})
	if got := <-told; got.State != ClaimFree {
		t.Fatal(got)
	}
	// A claim beside it: LEAVE would end both.
	got := claiming(s, "seat/1")
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.ClaimState{State: ClaimQueued, Position: 1})
	x := <-got
	<-told
	left := failed(x.c.Leave)
	c.state(c.claim(wirev1.Claim_OP_LEAVE), &wirev1.ClaimState{State: ClaimReleased})
	m = c.claim(wirev1.Claim_OP_WATCH)
	c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, RetryAfterMs: 1})
	m = c.claim(wirev1.Claim_OP_WATCH)
	c.state(m, &wirev1.ClaimState{State: ClaimFree})
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	<-told // RELEASED
	<-told // FREE
	got = claiming(s, "seat/1")
	acquire := c.claim(wirev1.Claim_OP_ACQUIRE)
	c.state(acquire, &wirev1.ClaimState{State: ClaimQueued, Position: 1})
	x = <-got
	w.Stop()
	soon(t, "the watch's end", w.Done())
	checked := make(chan ClaimInfo, 1)
	go func() {
		i, _ := s.CheckClaim(context.Background(), "seat/1")
		checked <- i
	}()
	m = c.claim(wirev1.Claim_OP_CHECK) // and no LEAVE before
	c.state(m, grantedFor(3, patience))
	if i := <-checked; i.State != ClaimGranted || i.Token != 3 {
		t.Fatal(i)
	}
	c.state(c.claim(wirev1.Claim_OP_RENEW), grantedFor(3, patience)) // the claim heard of it, too
	if err := x.c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.state(acquire, &wirev1.ClaimState{State: ClaimReleased, Token: 3})
	soon(t, "the end", x.c.Lost())
	c.claim(wirev1.Claim_OP_LEAVE)
}
