package claims

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func granted(token uint64) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_GRANTED, Token: token}
}

func queued(position uint32) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_QUEUED, Position: position}
}

func held(holder string) *wirev1.ClaimState {
	return &wirev1.ClaimState{Resource: "r", State: wirev1.ClaimState_STATE_HELD_BY_OTHER, Holder: holder}
}

func seconds(s float64) *durationpb.Duration {
	return durationpb.New(time.Duration(s * float64(time.Second)))
}

// Each call becomes the operation that it should.
func TestOperations(t *testing.T) {
	w := newWorld(t, nil)
	w.store.says(granted(3))
	ctx := t.Context()
	calls := []struct {
		call func() (interface{ GetState() *wirev1.ClaimState }, error)
		want *meshv1.ClaimOp
	}{
		{func() (interface{ GetState() *wirev1.ClaimState }, error) {
			return w.api.Acquire(ctx, &pushmeshv1.AcquireRequest{Resource: "r", Owner: "o", Ttl: seconds(1.0000001), Priority: 9, Wait: seconds(0.001), NoWait: true})
		}, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_ACQUIRE, Resource: "r", Owner: "o", TtlMs: 1001, Priority: 9, WaitMs: 1, NoWait: true}},
		{func() (interface{ GetState() *wirev1.ClaimState }, error) {
			return w.api.Renew(ctx, &pushmeshv1.RenewRequest{Resource: "r", Owner: "o", Token: 3, Ttl: seconds(5)})
		}, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_RENEW, Resource: "r", Owner: "o", Token: 3, TtlMs: 5000}},
		{func() (interface{ GetState() *wirev1.ClaimState }, error) {
			return w.api.Release(ctx, &pushmeshv1.ReleaseRequest{Resource: "r", Owner: "o", Token: 3, Successor: "p"})
		}, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_RELEASE, Resource: "r", Owner: "o", Token: 3, Successor: "p"}},
		{func() (interface{ GetState() *wirev1.ClaimState }, error) {
			return w.api.Leave(ctx, &pushmeshv1.LeaveRequest{Resource: "r", Owner: "o"})
		}, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_LEAVE, Resource: "r", Owner: "o"}},
		{func() (interface{ GetState() *wirev1.ClaimState }, error) {
			return w.api.Check(ctx, &pushmeshv1.CheckRequest{Resource: "r"})
		}, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_CHECK, Resource: "r"}},
	}
	for _, c := range calls {
		resp, err := c.call()
		if err != nil || resp.GetState().GetToken() != 3 {
			t.Fatalf("%v: %v, %v", c.want.GetKind(), resp, err)
		}
		got := w.store.op(t, c.want.GetKind())
		got.Ref = 0
		if !proto.Equal(got, c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
	if n := testutil.ToFloat64(w.metrics.requests.WithLabelValues("renew", "OK")); n != 1 {
		t.Errorf("%v renewals counted", n)
	}
}

func TestErrorsOfTheStore(t *testing.T) {
	w := newWorld(t, nil)
	w.store.answer = func(*meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_NOT_HELD, Error: "the token is not that of a hold"}
	}
	_, err := w.api.Renew(t.Context(), &pushmeshv1.RenewRequest{Resource: "r", Owner: "o", Token: 3})
	if status.Code(err) != codes.FailedPrecondition || code.Of(err) != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("got %v", err)
	}
	w.store.mu.Lock()
	w.store.answer = func(*meshv1.ClaimOp) *meshv1.ClaimResult {
		return &meshv1.ClaimResult{Code: wirev1.Code_CODE_OVERLOADED, Error: "the line is full", RetryAfterMs: 1500}
	}
	w.store.mu.Unlock()
	_, err = w.api.Acquire(t.Context(), &pushmeshv1.AcquireRequest{Resource: "r", Owner: "o"})
	if e := code.From(err); e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter != 1500*time.Millisecond || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	w := newWorld(t, nil) // with a store that answers nothing: what passes hangs
	long := strings.Repeat("o", 256)
	ctx := t.Context()
	acquire := func(req *pushmeshv1.AcquireRequest) error {
		_, err := w.api.Acquire(ctx, req)
		return err
	}
	release := func(req *pushmeshv1.ReleaseRequest) error {
		_, err := w.api.Release(ctx, req)
		return err
	}
	renew := func(req *pushmeshv1.RenewRequest) error {
		_, err := w.api.Renew(ctx, req)
		return err
	}
	list := func(req *pushmeshv1.ClaimServiceListRequest) error {
		_, err := w.api.List(ctx, req)
		return err
	}
	_, checked := w.api.Check(ctx, &pushmeshv1.CheckRequest{Resource: "r", Owner: "a\tb"})
	_, left := w.api.Leave(ctx, &pushmeshv1.LeaveRequest{Resource: "r"})
	for _, c := range []struct {
		err  error
		want wirev1.Code
		text string
	}{
		{acquire(&pushmeshv1.AcquireRequest{Owner: "o"}), wirev1.Code_CODE_BAD_TOPIC, "resource: bad topic: empty"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "a/+", Owner: "o"}), wirev1.Code_CODE_BAD_TOPIC, "wildcard"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "$a", Owner: "o"}), wirev1.Code_CODE_FORBIDDEN, "begin with $"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r"}), wirev1.Code_CODE_INVALID_ARGUMENT, "owner is missing"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: long}), wirev1.Code_CODE_INVALID_ARGUMENT, "256 bytes"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: "o\x7f"}), wirev1.Code_CODE_INVALID_ARGUMENT, "control character"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: "o", Priority: 10}), wirev1.Code_CODE_INVALID_ARGUMENT, "priority"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: "o", Ttl: seconds(0.5)}), wirev1.Code_CODE_INVALID_ARGUMENT, "at least 1s"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: "o", Ttl: seconds(-1)}), wirev1.Code_CODE_INVALID_ARGUMENT, "ttl"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: "o", Wait: &durationpb.Duration{Seconds: 1 << 60}}), wirev1.Code_CODE_INVALID_ARGUMENT, "wait"},
		{acquire(&pushmeshv1.AcquireRequest{Resource: "r", Owner: "o", Wait: seconds(5e6)}), wirev1.Code_CODE_INVALID_ARGUMENT, "at most"},
		{renew(&pushmeshv1.RenewRequest{Resource: "r", Owner: "o"}), wirev1.Code_CODE_INVALID_ARGUMENT, "token"},
		{renew(&pushmeshv1.RenewRequest{Resource: "r", Owner: "o", Token: 1, Ttl: seconds(0.1)}), wirev1.Code_CODE_INVALID_ARGUMENT, "ttl"},
		{release(&pushmeshv1.ReleaseRequest{Resource: "r", Owner: "o"}), wirev1.Code_CODE_INVALID_ARGUMENT, "token"},
		{release(&pushmeshv1.ReleaseRequest{Resource: "r", Owner: "o", Token: 1, Successor: "o"}), wirev1.Code_CODE_INVALID_ARGUMENT, "itself"},
		{release(&pushmeshv1.ReleaseRequest{Resource: "r", Owner: "o", Token: 1, Successor: long}), wirev1.Code_CODE_INVALID_ARGUMENT, "successor"},
		{list(&pushmeshv1.ClaimServiceListRequest{Limit: 1001}), wirev1.Code_CODE_INVALID_ARGUMENT, "1,000"},
		{list(&pushmeshv1.ClaimServiceListRequest{Resource: "r", Prefix: "r"}), wirev1.Code_CODE_INVALID_ARGUMENT, "both"},
		{list(&pushmeshv1.ClaimServiceListRequest{PageToken: "?"}), wirev1.Code_CODE_INVALID_ARGUMENT, "page_token"},
		{checked, wirev1.Code_CODE_INVALID_ARGUMENT, "control character"},
		{left, wirev1.Code_CODE_INVALID_ARGUMENT, "owner is missing"},
	} {
		if code.Of(c.err) != c.want || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("got %v, want %v with %q", c.err, c.want, c.text)
		}
	}
}

// watching opens a Watch and hands back what comes.
func watching(ctx context.Context, t *testing.T, w *world, req *pushmeshv1.WatchRequest) func() (*wirev1.ClaimState, error) {
	t.Helper()
	stream, err := w.api.Watch(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return func() (*wirev1.ClaimState, error) {
		resp, err := stream.Recv()
		return resp.GetState(), err
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t, nil)
	w.store.says(queued(2))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next := watching(ctx, t, w, &pushmeshv1.WatchRequest{Resource: "r", Owner: "o"})
	if st, err := next(); err != nil || st.GetPosition() != 2 {
		t.Fatal(st, err)
	}
	m := w.store.op(t, meshv1.ClaimOp_KIND_WATCH)
	if m.GetConn() == 0 || m.GetBound() {
		t.Errorf("the store is asked %v", m)
	}
	w.store.push(t, &meshv1.ClaimPush{Conn: m.GetConn(), Owner: "o", State: granted(4)})
	if st, err := next(); err != nil || st.GetToken() != 4 {
		t.Fatal(st, err)
	}
	cancel()
	if got := w.store.op(t, meshv1.ClaimOp_KIND_UNTIE); got.GetConn() != m.GetConn() {
		t.Errorf("the end is that of %v", got)
	}
	if _, err := next(); code.Of(err) != wirev1.Code_CODE_CANCELLED {
		t.Errorf("got %v", err)
	}
}

func TestWatchOfAResource(t *testing.T) {
	w := newWorld(t, nil)
	w.store.says(held("x"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next := watching(ctx, t, w, &pushmeshv1.WatchRequest{Resource: "r"})
	if st, err := next(); err != nil || st.GetHolder() != "x" {
		t.Fatal(st, err)
	}
	w.store.push(t, &meshv1.ClaimPush{State: held("y")})
	if st, err := next(); err != nil || st.GetHolder() != "y" {
		t.Fatal(st, err)
	}
	cancel()
	w.store.op(t, meshv1.ClaimOp_KIND_UNWATCH)
}

func TestWatchThatIsRefused(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxWatches = 1 })
	_, err := watching(t.Context(), t, w, &pushmeshv1.WatchRequest{Resource: "#"})()
	if code.Of(err) != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("got %v", err)
	}
	w.store.says(held("x"))
	next := watching(t.Context(), t, w, &pushmeshv1.WatchRequest{Resource: "r"})
	if _, err := next(); err != nil {
		t.Fatal(err)
	}
	_, err = watching(t.Context(), t, w, &pushmeshv1.WatchRequest{Resource: "r"})()
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter == 0 {
		t.Errorf("a second watch: %v", err)
	}
	w.Drain()
	if _, err := next(); code.Of(err) != wirev1.Code_CODE_DRAINING {
		t.Errorf("got %v", err)
	}
	if _, err := watching(t.Context(), t, w, &pushmeshv1.WatchRequest{Resource: "r"})(); code.Of(err) != wirev1.Code_CODE_DRAINING {
		t.Errorf("a watch after the drain: %v", err)
	}
}

// A caller that takes nothing is told so, once it reads on.
func TestSlowWatcher(t *testing.T) {
	w := &stream{wake: make(chan struct{}, 1)}
	for i := range maxQueued {
		w.push(queued(uint32(i + 1)))
	}
	if states, err := w.take(); err != nil || len(states) != maxQueued {
		t.Fatal(len(states), err)
	}
	for range maxQueued + 1 {
		w.push(queued(1))
	}
	if _, err := w.take(); code.Of(err) != wirev1.Code_CODE_SLOW_CONSUMER {
		t.Errorf("got %v", err)
	}
}

func TestBoundOfACaller(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxPerCaller = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan error, 1)
	go func() {
		_, err := w.api.Check(ctx, &pushmeshv1.CheckRequest{Resource: "r"})
		hangs <- err
	}()
	w.store.op(t, meshv1.ClaimOp_KIND_CHECK)
	_, err := w.api.Check(t.Context(), &pushmeshv1.CheckRequest{Resource: "r"})
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-hangs; code.Of(err) != wirev1.Code_CODE_CANCELLED {
		t.Errorf("got %v", err)
	}
	w.store.says(held("x"))
	for {
		if _, err = w.api.Check(t.Context(), &pushmeshv1.CheckRequest{Resource: "r"}); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
			break
		}
	}
	if err != nil {
		t.Errorf("after the first ended: %v", err)
	}
}
