package claim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/edgetest"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claim reads a Claim of an op.
func (c *edgeConn) claim(op wirev1.Claim_Op) *wirev1.Claim {
	c.T.Helper()
	m := &wirev1.Claim{}
	c.Expect(wirev1.FrameType_FRAME_TYPE_CLAIM, m)
	if m.GetOp() != op || m.GetId() == 0 {
		c.T.Fatalf("asked %v, want %v", m, op)
	}
	return m
}

// state answers m, or tells under its id.
func (c *edgeConn) state(m *wirev1.Claim, st *wirev1.ClaimState) {
	c.T.Helper()
	st.Id, st.Resource = m.GetId(), m.GetResource()
	c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, st)
}

func (c *edgeConn) refuseClaim(m *wirev1.Claim, e *wirev1.Error) {
	c.T.Helper()
	e.Ref = m.GetId()
	c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, e)
}

func grantedFor(token uint64, d time.Duration) *wirev1.ClaimState {
	return &wirev1.ClaimState{State: wirev1.ClaimState_STATE_GRANTED, Token: token, ExpiresInMs: uint32(d.Milliseconds())}
}

type claimed struct {
	c   *Place
	err error
}

func claiming(s *pushmesh.Subscriber, resource string, opts ...Option) chan claimed {
	done := make(chan claimed, 1)
	go func() {
		c, err := Join(context.Background(), s, resource, opts...)
		done <- claimed{c, err}
	}()
	return done
}

func soon(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(edgetest.Patience):
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
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	got := claiming(s, "seat/1", WithTTL(900*time.Millisecond), WithPriority(2), WithMaxWait(time.Minute))
	c := e.welcome()
	m := c.claim(wirev1.Claim_OP_ACQUIRE)
	if m.GetResource() != "seat/1" || m.GetTtlMs() != 900 || m.GetPriority() != 2 || m.GetWaitMs() != 60_000 || m.GetNoWait() {
		t.Fatal(m)
	}
	received := time.Now()
	c.state(m, grantedFor(7, edgetest.Patience))
	x := <-got
	if x.err != nil || !x.c.Held() || x.c.Token() != 7 || x.c.Position() != 0 || x.c.Wait(t.Context()) != nil {
		t.Fatalf("%v, held %v, token %d", x.err, x.c.Held(), x.c.Token())
	}
	if late := x.c.Deadline().Sub(received); late > edgetest.Patience {
		t.Fatalf("held for %v from when the edge had the request on, the mesh said %v", late, edgetest.Patience)
	}
	if _, err := Join(t.Context(), s, "seat/1"); pushmesh.CodeOf(err) != pushmesh.CodeAlreadyExists {
		t.Fatalf("claimed twice: %v", err)
	}
	released := failed(func(ctx context.Context) error { return x.c.Release(ctx, WithSuccessor("client:bob")) })
	soon(t, "the end", x.c.Lost())
	m = c.claim(wirev1.Claim_OP_RELEASE)
	if m.GetToken() != 7 || m.GetSuccessor() != "client:bob" || x.c.Held() || x.c.Err() != nil {
		t.Fatal(m, x.c.Err())
	}
	c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
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
	c.state(m, grantedFor(8, edgetest.Patience))
	checked := failed(func(ctx context.Context) error { _, err := Check(ctx, s, "seat/1"); return err })
	// behind the other answer
	c.state(c.claim(wirev1.Claim_OP_CHECK), grantedFor(8, edgetest.Patience))
	if err := <-checked; err != nil || !x.c.Deadline().After(before) {
		t.Fatalf("%v, held until %v, before the renewal until %v", err, x.c.Deadline(), before)
	}
}

func TestClaimWaitsAndTakesTheOfferUp(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	positions := make(chan int, 10)
	got := claiming(s, "seat/1", OnPosition(func(at int) { positions <- at }))
	c := e.welcome()
	acquire := c.claim(wirev1.Claim_OP_ACQUIRE)
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 3})
	x := <-got
	if x.err != nil || x.c.Held() || x.c.Position() != 3 || x.c.Token() != 0 {
		t.Fatalf("%v, held %v, position %d", x.err, x.c.Held(), x.c.Position())
	}
	// told again
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 3})
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
	if a, b := <-positions, <-positions; a != 3 || b != 1 {
		t.Fatalf("positions %d, %d", a, b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := x.c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	c.state(acquire, grantedFor(9, edgetest.Patience))
	renew := c.claim(wirev1.Claim_OP_RENEW)
	if renew.GetToken() != 9 || x.c.Held() {
		t.Fatalf("asked %v, held %v before it was taken up", renew, x.c.Held())
	}
	c.state(renew, grantedFor(9, edgetest.Patience))
	if err := x.c.Wait(t.Context()); err != nil || !x.c.Held() || x.c.Token() != 9 || x.c.Position() != 0 {
		t.Fatal(err)
	}
	// of a hold before
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_LOST, Token: 8})
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_LOST, Token: 9, Code: wirev1.Code_CODE_EXPIRED})
	soon(t, "LOST", x.c.Lost())
	if pushmesh.CodeOf(x.c.Err()) != pushmesh.CodeExpired || x.c.Held() {
		t.Fatal(x.c.Err())
	}
	if err := x.c.Release(t.Context()); pushmesh.CodeOf(err) != pushmesh.CodeExpired {
		t.Fatalf("released what was lost: %v", err)
	}
}

// Whoever can't renew knows that the hold is over when it may be over, not later.
func TestClaimThatCanNotBeRenewedIsLost(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	got := claiming(s, "seat/1")
	c := e.welcome()
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(1, 600*time.Millisecond))
	x := <-got
	c.refuseClaim(c.claim(wirev1.Claim_OP_RENEW), &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, RetryAfterMs: 1})
	c.claim(wirev1.Claim_OP_RENEW) // never answered
	soon(t, "the end", x.c.Lost())
	if x.c.Held() || pushmesh.CodeOf(x.c.Err()) != pushmesh.CodeUnavailable {
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
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	c := e.welcome()
	take := func(resource string, st *wirev1.ClaimState) *Place {
		got := claiming(s, resource)
		c.state(c.claim(wirev1.Claim_OP_ACQUIRE), st)
		x := <-got
		if x.err != nil {
			t.Fatal(x.err)
		}
		return x.c
	}
	holds, waits, gone := take("a", grantedFor(5, edgetest.Patience)), take("b", &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 2}), take("c", grantedFor(6, edgetest.Patience))
	c.Close()
	c = e.welcome()
	for range 3 {
		m := &wirev1.Claim{}
		c.Expect(wirev1.FrameType_FRAME_TYPE_CLAIM, m)
		switch {
		case m.GetResource() == "a" && m.GetOp() == wirev1.Claim_OP_RENEW && m.GetToken() == 5:
			c.state(m, grantedFor(5, edgetest.Patience))
		case m.GetResource() == "b" && m.GetOp() == wirev1.Claim_OP_ACQUIRE:
			c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
		case m.GetResource() == "c" && m.GetOp() == wirev1.Claim_OP_RENEW && m.GetToken() == 6:
			c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_NOT_HELD})
		default:
			t.Fatal(m)
		}
	}
	soon(t, "the end of what was lost", gone.Lost())
	if pushmesh.CodeOf(gone.Err()) != pushmesh.CodeNotHeld || !holds.Held() || holds.Token() != 5 {
		t.Fatal(gone.Err(), holds.Held(), holds.Token())
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	soon(t, "the end with the subscriber", waits.Lost())
	if !errors.Is(waits.Wait(t.Context()), pushmesh.ErrClosed) || waits.Position() != 1 {
		t.Fatal(waits.Wait(t.Context()), waits.Position())
	}
	if _, err := Join(t.Context(), s, "a"); !errors.Is(err, pushmesh.ErrClosed) {
		t.Fatal(err)
	}
}

func TestClaimRefused(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	got := claiming(s, "seat/1")
	c := e.welcome()
	c.refuseClaim(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.Error{Code: wirev1.Code_CODE_FORBIDDEN})
	if x := <-got; pushmesh.CodeOf(x.err) != pushmesh.CodeForbidden || x.c != nil {
		t.Fatal(x)
	}
	got = claiming(s, "seat/1", WithoutWaiting())
	m := c.claim(wirev1.Claim_OP_ACQUIRE)
	if !m.GetNoWait() {
		t.Fatal(m)
	}
	c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_HELD_BY_OTHER, Holder: "client:bob"})
	if x := <-got; !errors.Is(x.err, ErrHeldByOther) {
		t.Fatal(x.err)
	}
	got = claiming(s, "seat/1") // is tried again where that can help
	c.refuseClaim(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.Error{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 1})
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(1, edgetest.Patience))
	if x := <-got; x.err != nil {
		t.Fatal(x.err)
	}
	if _, err := Join(t.Context(), s, "\xff"); pushmesh.CodeOf(err) != pushmesh.CodeInvalidArgument {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := failed(func(context.Context) error { _, err := Acquire(ctx, s, "seat/2"); return err })
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
	cancel()
	if err := <-late; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// it was granted meanwhile
	c.state(c.claim(wirev1.Claim_OP_LEAVE), grantedFor(4, edgetest.Patience))
	if m := c.claim(wirev1.Claim_OP_RELEASE); m.GetToken() != 4 {
		t.Fatal(m)
	}
}

func TestReleaseThroughABreak(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	c := e.welcome()
	for _, broken := range []bool{true, false} {
		got := claiming(s, "seat/1")
		c.state(c.claim(wirev1.Claim_OP_ACQUIRE), grantedFor(5, edgetest.Patience))
		x := <-got
		done := failed(func(ctx context.Context) error { return x.c.Leave(ctx) })
		m := c.claim(wirev1.Claim_OP_RELEASE)
		if broken { // it may have been done: that the token is not good any more is no surprise
			c.Close()
			c = e.welcome()
			m = c.claim(wirev1.Claim_OP_RELEASE)
		}
		c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE, Code: wirev1.Code_CODE_NOT_HELD})
		if err := <-done; broken != (err == nil) || !broken && pushmesh.CodeOf(err) != pushmesh.CodeNotHeld {
			t.Fatalf("broken %v: %v", broken, err)
		}
	}
}

func TestClaimWindow(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	var all []chan claimed
	for i := range askWindow + 1 {
		all = append(all, claiming(s, "seat/"+string(rune('a'+i))))
	}
	c := e.welcome()
	var asked []*wirev1.Claim
	for range askWindow {
		asked = append(asked, c.claim(wirev1.Claim_OP_ACQUIRE))
	}
	c.state(asked[0], grantedFor(1, edgetest.Patience))
	asked = append(asked, c.claim(wirev1.Claim_OP_ACQUIRE)) // there is room now
	for _, m := range asked[1:] {
		c.state(m, grantedFor(1, edgetest.Patience))
	}
	for _, got := range all {
		if x := <-got; x.err != nil {
			t.Fatal(x.err)
		}
	}
}

func TestWatchClaim(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
	told := make(chan Info, 10)
	watching := make(chan *Watcher, 1)
	go func() {
		w, _ := Watch(context.Background(), s, "seat/1", func(i Info) { told <- i })
		watching <- w
	}()
	c := e.welcome()
	m := c.claim(wirev1.Claim_OP_WATCH)
	c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_HELD_BY_OTHER, Holder: "client:bob", Holding: 1, Waiting: 4, ExpiresInMs: 1500})
	w := <-watching
	if got, want := <-told, (Info{Resource: "seat/1", State: HeldByOther, Holder: "client:bob", Holding: 1, Waiting: 4, ExpiresIn: 1500 * time.Millisecond}); got != want {
		t.Fatalf("told %+v, want %+v", got, want)
	}
	if _, err := Watch(t.Context(), s, "seat/1", func(Info) {}); pushmesh.CodeOf(err) != pushmesh.CodeAlreadyExists {
		t.Fatal(err)
	}
	c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
	if got := <-told; got.State != Free {
		t.Fatal(got)
	}
	// A claim beside it: LEAVE would end both.
	got := claiming(s, "seat/1")
	c.state(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
	x := <-got
	<-told
	left := failed(x.c.Leave)
	c.state(c.claim(wirev1.Claim_OP_LEAVE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED})
	m = c.claim(wirev1.Claim_OP_WATCH)
	c.refuseClaim(m, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, RetryAfterMs: 1})
	m = c.claim(wirev1.Claim_OP_WATCH)
	c.state(m, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_FREE})
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	<-told // RELEASED
	<-told // FREE
	got = claiming(s, "seat/1")
	acquire := c.claim(wirev1.Claim_OP_ACQUIRE)
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
	x = <-got
	w.Stop()
	soon(t, "the watch's end", w.Done())
	checked := make(chan Info, 1)
	go func() {
		i, _ := Check(context.Background(), s, "seat/1")
		checked <- i
	}()
	m = c.claim(wirev1.Claim_OP_CHECK) // and no LEAVE before
	c.state(m, grantedFor(3, edgetest.Patience))
	if i := <-checked; i.State != Granted || i.Token != 3 {
		t.Fatal(i)
	}
	// the claim heard of it, too
	c.state(c.claim(wirev1.Claim_OP_RENEW), grantedFor(3, edgetest.Patience))
	if err := x.c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.state(acquire, &wirev1.ClaimState{State: wirev1.ClaimState_STATE_RELEASED, Token: 3})
	soon(t, "the end", x.c.Lost())
	c.claim(wirev1.Claim_OP_LEAVE)
}

// A handler may wait until it holds a resource, however much lies before that word; a callback that
// it waits for can't, and is told so.
func TestClaimsFromWithin(t *testing.T) {
	e := newFakeEdge(t)
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}, ReceiveWindow: 4})
	c := e.welcome()
	type got struct {
		place *Place
		err   error
	}
	done, refused := make(chan got, 1), make(chan []error, 1)
	first := true
	if _, err := s.Start("talk", func(context.Context, *pushmesh.Delivery) error {
		if !first {
			return nil
		}
		first = false
		place, err := Acquire(context.Background(), s, "seat/1", OnPosition(func(int) {
			var errs []error
			for _, call := range []func() error{
				func() error { _, err := Join(context.Background(), s, "seat/2"); return err },
				func() error { _, err := Check(context.Background(), s, "seat/2"); return err },
				func() error { _, err := Watch(context.Background(), s, "seat/2", func(Info) {}); return err },
			} {
				errs = append(errs, call())
			}
			refused <- errs
		}))
		done <- got{place, err}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var m wirev1.Subscribe
	c.Expect(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &m)
	c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Recovered: true})
	talk := func() {
		for range 300 {
			c.Send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk"})
		}
	}
	c.Send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "talk"})
	var ask wirev1.Claim
	c.Expect(wirev1.FrameType_FRAME_TYPE_CLAIM, &ask)
	c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{Id: ask.GetId(), Resource: "seat/1", State: wirev1.ClaimState_STATE_QUEUED, Position: 1})
	select {
	case errs := <-refused:
		for i, err := range errs {
			if err == nil {
				t.Errorf("call %d of a callback was answered", i)
			}
		}
	case <-time.After(edgetest.Patience):
		t.Fatal("a callback waits for itself")
	}
	talk()
	c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{Resource: "seat/1", State: wirev1.ClaimState_STATE_GRANTED, Token: 7})
	c.Expect(wirev1.FrameType_FRAME_TYPE_CLAIM, &ask)
	if ask.GetOp() != wirev1.Claim_OP_RENEW || ask.GetToken() != 7 {
		t.Fatal(&ask)
	}
	talk()
	c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{Id: ask.GetId(), Resource: "seat/1", State: wirev1.ClaimState_STATE_GRANTED, Token: 7, ExpiresInMs: 3_600_000})
	select {
	case x := <-done:
		if x.err != nil || x.place.Token() != 7 {
			t.Error(x.err)
		}
	case <-time.After(edgetest.Patience):
		t.Fatal("the word lies behind messages that wait for the handler that waits for it")
	}
}

// A call whose connection, context or Subscriber ends before its answer, and that was asked before,
// says that it may have been done; one that was never sent does not.
func TestClaimsThatMayHaveBeenDone(t *testing.T) {
	for name, x := range map[string]struct {
		end func(e *fakeEdge, c *edgeConn, s *pushmesh.Subscriber, cancel func())
		is  error
	}{
		"nobody waits any more": {func(_ *fakeEdge, _ *edgeConn, _ *pushmesh.Subscriber, cancel func()) { cancel() }, context.Canceled},
		"closed": {func(_ *fakeEdge, _ *edgeConn, s *pushmesh.Subscriber, _ func()) {
			go func() { _ = s.Close(context.Background()) }()
		}, pushmesh.ErrClosed},
		"refused the second time": {func(e *fakeEdge, c *edgeConn, _ *pushmesh.Subscriber, _ func()) {
			c.Close()
			c = e.welcome()
			m := c.claim(wirev1.Claim_OP_RELEASE)
			c.Send(wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Ref: m.GetId(), Code: wirev1.Code_CODE_FORBIDDEN})
		}, pushmesh.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEdge(t)
			s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{e.Addr()}})
			c := e.welcome()
			joined := make(chan *Place, 1)
			go func() {
				place, err := Join(t.Context(), s, "seat/1")
				if err != nil {
					t.Error(err)
				}
				joined <- place
			}()
			c.state(c.claim(wirev1.Claim_OP_ACQUIRE), &wirev1.ClaimState{State: wirev1.ClaimState_STATE_GRANTED, Token: 7, ExpiresInMs: 3_600_000})
			place := <-joined
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			released := make(chan error, 1)
			go func() { released <- place.Release(ctx) }()
			c.claim(wirev1.Claim_OP_RELEASE)
			x.end(e, c, s, cancel)
			var said *pushmesh.Error
			if err := <-released; !errors.As(err, &said) || !said.Unknown || !errors.Is(err, x.is) {
				t.Errorf("released: %v", err)
			}
		})
	}
	s := edgetest.NewSubscriber(t, pushmesh.SubscriberConfig{Addrs: []string{"127.0.0.1:1"}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said *pushmesh.Error
	if _, err := Check(ctx, s, "seat/1"); !errors.Is(err, context.Canceled) || errors.As(err, &said) && said.Unknown {
		t.Errorf("never sent: %v", err)
	}
}
