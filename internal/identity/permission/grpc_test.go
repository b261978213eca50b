package permission

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller/callertest"
	"github.com/pushmesh/pushmesh/proto/gen/hookv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// By gRPC the backend is asked the same, and a yes, a no and none are what they are by HTTP.
func TestWhatIsAskedByGRPC(t *testing.T) {
	about := func(members map[string]any) *structpb.Struct {
		t.Helper()
		s, err := structpb.NewStruct(members)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var says *hookv1.EvaluateResponse
	var fails error
	b := (&callertest.GRPC{OnEvaluate: func(_ context.Context, q *hookv1.EvaluateRequest) (*hookv1.EvaluateResponse, error) {
		if q.GetSubject().GetType() != "user" || q.GetSubject().GetId() != "ann" || q.GetSubject().GetProperties().GetFields()["client_id"].GetStringValue() != "phone" ||
			q.GetAction().GetName() != "group" || q.GetResource().GetType() != "topic" || q.GetResource().GetId() != "jobs" ||
			q.GetResource().GetProperties().GetFields()["group"].GetStringValue() != "workers" || q.GetContext().GetFields()["edge"].GetStringValue() != "e1" {
			t.Errorf("asked %v", q)
		}
		return says, fails
	}}).Serve(t)
	h, err := New(Config{URL: b.URL, Guard: callertest.Guard(t), Edge: "e1"})
	if err != nil {
		t.Fatal(err)
	}
	callertest.Ends(t, h.Stop)
	q := &identity.Question{User: "ann", Client: "phone", Verb: identity.Group, Filter: "jobs", Group: "workers"}
	says = &hookv1.EvaluateResponse{Decision: true, Context: about(map[string]any{"cache_seconds": 120})}
	if p, err := h.Ask(t.Context(), q); err != nil || !p.Allowed || p.Left < time.Minute {
		t.Errorf("yes: %+v, %v", p, err)
	}
	if p, known := h.Known(q); !known || !p.Allowed {
		t.Errorf("the answer is not used again: %+v", p)
	}
	says = &hookv1.EvaluateResponse{Context: about(map[string]any{"reason": "no member"})}
	if p, err := h.Ask(t.Context(), q); err != nil || p.Allowed || !strings.Contains(p.Reason, "no member") {
		t.Errorf("no: %+v, %v", p, err)
	}
	for _, fails = range []error{status.Error(codes.PermissionDenied, "x"), status.Error(codes.Internal, "x"), status.Error(codes.Unimplemented, "x")} {
		if p, err := h.Ask(t.Context(), q); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || p.Allowed {
			t.Errorf("%v: %+v, %v", fails, p, err)
		}
	}
}
