package pushmesh

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// CancelScheduled answers as the test's decideCancel says.
func (r *fakeRouter) CancelScheduled(_ context.Context, req *pushmeshv1.CancelScheduledRequest) (*pushmeshv1.CancelScheduledResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = append(r.cancelled, string(req.GetMessageId()))
	if r.decideCancel != nil {
		if err := r.decideCancel(len(r.cancelled)); err != nil {
			return nil, err
		}
	}
	return &pushmeshv1.CancelScheduledResponse{}, nil
}

// cancels sets decideCancel and says which message ids came so far.
func (r *fakeRouter) cancels(decide func(call int) error) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decideCancel = decide
	return slices.Clone(r.cancelled)
}

func conflict() error {
	st, err := status.New(codes.FailedPrecondition, "it was delivered").WithDetails(&errdetails.ErrorInfo{Reason: "CONFLICT"})
	if err != nil {
		return err
	}
	return st.Err()
}

func TestCancelScheduledIsRepeatedUntilAnswered(t *testing.T) {
	r := newFakeRouter(t)
	r.cancels(func(call int) error {
		if call < 3 {
			return status.Error(codes.Unavailable, "not now")
		}
		return nil
	})
	p := newTestProducer(t, ProducerConfig{Addrs: []string{nobody, r.addr}, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond})
	if err := p.CancelScheduled(t.Context(), ID([]byte("one of 16 bytes."))); err != nil {
		t.Fatal(err)
	}
	if asked := r.cancels(func(int) error { return conflict() }); len(asked) != 3 || asked[2] != "one of 16 bytes." {
		t.Errorf("asked %q", asked)
	}
	if err := p.CancelScheduled(t.Context(), ID([]byte("late, 16 bytes.."))); CodeOf(err) != CodeConflict {
		t.Errorf("cancelled too late: %v", err)
	}
	if asked := r.cancels(nil); len(asked) != 4 || asked[3] != "late, 16 bytes.." {
		t.Errorf("asked %q", asked)
	}
}

func TestCancelScheduledEnds(t *testing.T) {
	r := newFakeRouter(t)
	r.cancels(func(int) error { return status.Error(codes.Unavailable, "never") })
	p := newTestProducer(t, ProducerConfig{Addrs: []string{r.addr}, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.CancelScheduled(ctx, ID([]byte("one of 16 bytes."))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the context's end: %v", err)
	}
	if err := p.Close(in(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := p.CancelScheduled(t.Context(), ID([]byte("one of 16 bytes."))); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
