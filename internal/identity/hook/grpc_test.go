package hook

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller"
	"github.com/pushmesh/pushmesh/internal/identity/caller/callertest"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/hookv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claims is an answer whose claims are those of JSON.
func claims(t *testing.T, text string) *hookv1.ConnectResponse {
	t.Helper()
	all := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), all); err != nil {
		t.Fatal(err)
	}
	return &hookv1.ConnectResponse{Claims: all}
}

// By gRPC the backend is asked the same, signed by the method's name, and its answer means the
// same.
func TestWhoTheBackendKnowsByGRPC(t *testing.T) {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("twenty-four bytes of test"))
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	signs, err := outbound.OpenSecret(file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := webhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Hour).Unix()
	b := (&callertest.GRPC{OnConnect: func(ctx context.Context, q *hookv1.ConnectRequest) (*hookv1.ConnectResponse, error) {
		if q.GetToken() != "cookie" || q.GetClientId() != "phone" || q.GetSession() != "s" || q.GetAddress() != "10.1.2.3" || q.GetEdge() != "e1" {
			t.Errorf("asked %v", q)
		}
		told, _ := metadata.FromIncomingContext(ctx)
		header := http.Header{}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			header.Set(name, strings.Join(told.Get(name), ""))
		}
		if err := checks.Verify([]byte("/pushmesh.hook.v1.HookService/Connect"), header); err != nil {
			t.Errorf("the signature: %v", err)
		}
		says := claims(t, `{"sub": "ann", "pm_sub": ["room/+/chat"], "cache_seconds": 60}`)
		says.Claims.Fields["exp"] = structpb.NewNumberValue(float64(until))
		return says, nil
	}}).Serve(t)
	h, err := New(Config{URL: b.URL, Guard: callertest.Guard(t), Secret: signs})
	if err != nil {
		t.Fatal(err)
	}
	callertest.Ends(t, h.Stop)
	q := &Question{Token: "cookie", Client: "phone", Session: "s", Address: "10.1.2.3", Edge: "e1", Cookie: "id=1; theme=dark"}
	who, err := h.Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, granted := who.Allows(identity.Subscribe, "room/1/chat"); !granted || who.User != "ann" || who.Expires.Unix() != until {
		t.Errorf("got %+v", who)
	}
	if h.Known(q) == nil {
		t.Error("an answer that may be used again is not")
	}
}

// Whatever a backend says by gRPC, or does not, lets nobody in but a whole and sound answer.
func TestNobodyComesInByAFaultOfGRPC(t *testing.T) {
	later, err := status.New(codes.Unavailable, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(6500 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	big := claims(t, `{"sub": "ann", "expires_in": 60}`)
	big.Claims.Fields["more"] = structpb.NewStringValue(strings.Repeat("x", 10<<20))
	release := make(chan struct{})
	defer close(release)
	for what, c := range map[string]struct {
		answer *hookv1.ConnectResponse
		err    error
		slow   bool
		want   wirev1.Code
		says   string
		after  time.Duration
	}{
		"UNAUTHENTICATED":      {err: status.Error(codes.Unauthenticated, "not paid\n"), want: wirev1.Code_CODE_UNAUTHENTICATED, says: ": not paid"},
		"PERMISSION_DENIED":    {err: status.Error(codes.PermissionDenied, ""), want: wirev1.Code_CODE_UNAUTHENTICATED, says: "does not let the client in"},
		"UNAVAILABLE":          {err: status.Error(codes.Unavailable, "x"), want: wirev1.Code_CODE_UNAVAILABLE},
		"come back later":      {err: later.Err(), want: wirev1.Code_CODE_UNAVAILABLE, says: "come back later", after: 7 * time.Second},
		"INTERNAL":             {err: errors.New("x"), want: wirev1.Code_CODE_UNAVAILABLE},
		"no such method":       {err: status.Error(codes.Unimplemented, "x"), want: wirev1.Code_CODE_UNAVAILABLE},
		"nothing":              {answer: &hookv1.ConnectResponse{}, want: wirev1.Code_CODE_UNAVAILABLE},
		"nobody":               {answer: claims(t, `{"expires_in": 60}`), want: wirev1.Code_CODE_UNAVAILABLE},
		"claims of other kind": {answer: claims(t, `{"sub": 7, "expires_in": 60}`), want: wirev1.Code_CODE_UNAVAILABLE},
		"10 MiB":               {answer: big, want: wirev1.Code_CODE_UNAVAILABLE},
		"no answer in time":    {slow: true, want: wirev1.Code_CODE_UNAVAILABLE},
	} {
		b := (&callertest.GRPC{OnConnect: func(ctx context.Context, _ *hookv1.ConnectRequest) (*hookv1.ConnectResponse, error) {
			if c.slow {
				select {
				case <-ctx.Done():
				case <-release:
				}
			}
			return c.answer, c.err
		}}).Serve(t)
		timeout := time.Minute
		if c.slow {
			timeout = 50 * time.Millisecond
		}
		h, err := New(Config{URL: b.URL, Guard: callertest.Guard(t), Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		who, err := h.Ask(t.Context(), &Question{Token: "x"})
		var why *code.Error
		switch {
		case !errors.As(err, &why) || who != nil || why.Code != c.want || !strings.Contains(why.Error(), c.says):
			t.Errorf("%s: %v, %v", what, who, err)
		case c.after > 0 && why.RetryAfter != c.after:
			t.Errorf("%s: come back after %s", what, why.RetryAfter)
		}
		callertest.Ends(t, h.Stop)
	}
}

// A question to which a backend that works has no answer is no reason to leave it alone: else one
// client could shut out all others.
func TestACrowdOfOneDoesNotOpenTheBreakerByGRPC(t *testing.T) {
	b := (&callertest.GRPC{OnConnect: func(_ context.Context, q *hookv1.ConnectRequest) (*hookv1.ConnectResponse, error) {
		if q.GetToken() == "odd" {
			return nil, status.Error(codes.InvalidArgument, "odd")
		}
		return claims(t, `{"sub": "ann", "expires_in": 60}`), nil
	}}).Serve(t)
	h, err := New(Config{URL: b.URL, Guard: callertest.Guard(t)})
	if err != nil {
		t.Fatal(err)
	}
	callertest.Ends(t, h.Stop)
	for range 2 * caller.FailuresToOpen {
		if _, err := h.Ask(t.Context(), &Question{Token: "odd"}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("got %v", err)
		}
	}
	if _, err := h.Ask(t.Context(), &Question{Token: "good"}); err != nil {
		t.Errorf("somebody else: %v", err)
	}
}

// URLs of gRPC have a host and a port, and addresses that may not be called are not.
func TestURLsOfGRPC(t *testing.T) {
	for url, want := range map[string]string{
		"grpc://backend": "HOST:PORT", "grpcs://:7": "HOST:PORT", "grpcs://h:1/path": "without a path", "grpc://u:secret@h:1": "a user name", "gprc://h:1": "grpcs://HOST:PORT",
	} {
		if _, err := New(Config{URL: url, Guard: callertest.Guard(t)}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	b := (&callertest.GRPC{}).Serve(t)
	h, err := New(Config{URL: b.URL, Guard: outbound.New(outbound.Config{Metric: "refused"})})
	if err != nil {
		t.Fatal(err)
	}
	callertest.Ends(t, h.Stop)
	for range caller.FailuresToOpen {
		if _, err := h.Ask(t.Context(), &Question{Token: "x"}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("loopback is called: %v", err)
		}
	}
	if b.Asked.Load() != 0 || h.Check() == nil {
		t.Errorf("asked %d times, %v", b.Asked.Load(), h.Check())
	}
}
