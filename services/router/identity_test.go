package router

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// bearer shows a key or a token with each call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// keyed makes a key of a new backend in a file.
func keyed(tb testing.TB, path, name string, roles ...string) bearer {
	tb.Helper()
	_, text, err := backends.Create(path, name, roles, time.Now(), time.Time{})
	if err != nil {
		tb.Fatal(err)
	}
	return bearer(text)
}

func TestWhoMayStartARouter(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Settings{
		"--backends FILE":    {},
		"give one of them":   {Open: true, Backends: "x"},
		"--issuers needs":    {Open: true, Issuers: "x"},
		"--outbound-allow":   {Open: true, OutboundAllow: []string{"everywhere"}},
		"/nowhere: no such":  {Backends: "/nowhere"},
		"/nowhere2: no such": {Backends: "/nowhere", Issuers: "/nowhere2"},
	} {
		s.PlainTiers = true
		if _, err := New(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestWaysToProveWhoCalls publishes with keys, certificates and tokens, and with wrong ones, to its
// own topic and to another's.
func TestWaysToProveWhoCalls(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	var key bearer
	m := secureMesh(t, func(m *secured, s *Settings) {
		path := m.file("backends.yaml")
		key = keyed(t, path, "keyed", "publisher:live/keyed")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, `
  - name: certified
    roles: ['publisher:live/certified']
    certificates: [certified]
  - name: signed
    roles: ['publisher:live/signed']
    tokens: [{issuer: test, sub: svc}]
`...)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Open, s.Backends, s.Issuers, s.OutboundAllow = false, path, is.File(t), []string{"127.0.0.1"}
		s.TLSClientCA, s.TLSRequired = m.file("ca.pem"), true
	})
	other := tokentest.New(t)
	for name, c := range map[string]struct {
		certificate string
		shows       bearer
		topic       string
		want        wirev1.Code
	}{
		"key":                                {"stranger", key, "live/keyed", wirev1.Code_CODE_OK},
		"key, another's topic":               {"stranger", key, "live/signed", wirev1.Code_CODE_FORBIDDEN},
		"wrong key":                          {"stranger", key[:len(key)-8] + "AAAAAAAA", "live/keyed", wirev1.Code_CODE_UNAUTHENTICATED},
		"wrong key with a good certificate":  {"certified", "pmk_no", "live/certified", wirev1.Code_CODE_UNAUTHENTICATED},
		"certificate":                        {"certified", "", "live/certified", wirev1.Code_CODE_OK},
		"certificate, another's topic":       {"certified", "", "live/keyed", wirev1.Code_CODE_FORBIDDEN},
		"certificate of nobody":              {"stranger", "", "live/certified", wirev1.Code_CODE_UNAUTHENTICATED},
		"token":                              {"stranger", bearer(is.Token("svc", nil)), "live/signed", wirev1.Code_CODE_OK},
		"token, another's topic":             {"stranger", bearer(is.Token("svc", nil)), "live/keyed", wirev1.Code_CODE_FORBIDDEN},
		"token of a user":                    {"stranger", bearer(is.Token("ann", nil)), "live/signed", wirev1.Code_CODE_UNAUTHENTICATED},
		"token that has ended":               {"stranger", bearer(is.Token("svc", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})), "live/signed", wirev1.Code_CODE_TOKEN_EXPIRED},
		"token of another issuer":            {"stranger", bearer(other.Token("svc", nil)), "live/signed", wirev1.Code_CODE_UNAUTHENTICATED},
		"token for another service":          {"stranger", bearer(is.Token("svc", map[string]any{"aud": "billing"})), "live/signed", wirev1.Code_CODE_UNAUTHENTICATED},
		"token that says another one's name": {"stranger", bearer(other.Token("svc", map[string]any{"iss": is.URL})), "live/signed", wirev1.Code_CODE_UNAUTHENTICATED},
	} {
		m.creds = credentials.NewTLS(m.trust(t, c.certificate))
		conn := m.from(t, "127.0.0.1")
		err := unlessBusy(t, func(ctx context.Context) error {
			_, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, &pushmeshv1.PublishRequest{Topic: c.topic}, perRPC(c.shows))
			return err
		})
		if code.Of(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestTopicsAreCheckedOneByOne refuses messages, and not the stream or the call that they are in.
func TestTopicsAreCheckedOneByOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backends.yaml")
	key := keyed(t, path, "orders", "publisher:live/a/#", "publisher:live/b")
	m := startMesh(t, func(s *Settings) { s.Open, s.Backends = false, path })
	want := map[string]wirev1.Code{
		"live/a": wirev1.Code_CODE_OK, "live/a/1": wirev1.Code_CODE_OK, "live/b": wirev1.Code_CODE_OK,
		"live/b/1": wirev1.Code_CODE_FORBIDDEN, "live": wirev1.Code_CODE_FORBIDDEN, "$dead/x": wirev1.Code_CODE_FORBIDDEN, "a//b": wirev1.Code_CODE_BAD_TOPIC,
	}
	var topics []string
	for topic := range want {
		topics = append(topics, topic)
	}
	res, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topics: topics}, perRPC(key))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range res.GetResults() {
		if r.GetCode() != want[topics[i]] {
			t.Errorf("%s: %v %s", topics[i], r.GetCode(), r.GetError())
		}
	}
	stream, err := m.pub.PublishStream(t.Context(), perRPC(key))
	if err != nil {
		t.Fatal(err)
	}
	req := &pushmeshv1.PublishStreamRequest{}
	for i, topic := range topics {
		req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: uint64(i), Message: &pushmeshv1.PublishRequest{Topic: topic}})
	}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	for left := len(topics); left > 0; {
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.GetResults() {
			left--
			if topic := topics[r.GetRef()]; r.GetCode() != want[topic] {
				t.Errorf("%s in a stream: %v %s", topic, r.GetCode(), r.GetError())
			}
		}
	}
	if err := backends.Revoke(path, strings.Split(string(key), "_")[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); code.Of(err) != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("once its key is revoked the stream ends with %v", err)
	}
	if _, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/b"}, perRPC(key)); code.Of(err) != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("and a call with %v", err)
	}
	if err := m.sample(t, `pushmesh_router_calls_refused_total{code="UNAUTHENTICATED"}`, "2"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(m.sample(t, "pushmesh_router_backends", "1"), m.sample(t, "pushmesh_router_backend_keys", "0")); err != nil {
		t.Error(err)
	}
}

// TestLimitsAreTheIdentitys are those in the file, for all connections of a backend together.
func TestLimitsAreTheIdentitys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backends.yaml")
	slow, fast := keyed(t, path, "slow", "publisher:live/#"), keyed(t, path, "fast", "publisher:live/#")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	limited := strings.Replace(string(data), "- name: slow\n", "- name: slow\n    limits: {rate: 1, in_flight: 7}\n", 1)
	if err := os.WriteFile(path, []byte(limited), 0o600); err != nil {
		t.Fatal(err)
	}
	m := startMesh(t, func(s *Settings) { s.Open, s.Backends = false, path })
	refused := func(key bearer) (n int) {
		for range 3 {
			pub := pushmeshv1.NewPublishServiceClient(m.from(t, "127.0.0.1"))
			for range 10 {
				_, err := pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/1"}, perRPC(key))
				if code.Of(err) == wirev1.Code_CODE_RATE_LIMITED {
					n++
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		return n
	}
	if n := refused(fast); n != 0 {
		t.Errorf("%d messages of the one without limits are refused", n)
	}
	if n := refused(slow); n < 10 {
		t.Errorf("%d of 30 messages of the one with 1 a second are refused", n)
	}
	stream, err := m.pub.PublishStream(t.Context(), perRPC(slow))
	if err != nil {
		t.Fatal(err)
	}
	header, err := stream.Header()
	if got := strings.Join(header.Get("pushmesh-in-flight"), " "); err != nil || got != "7" {
		t.Errorf("it is told %q may be unanswered, %v", got, err)
	}
}

func perRPC(b bearer) grpc.CallOption { return grpc.PerRPCCredentials(b) }

// unlessBusy calls until the answer is for good: an issuer's keys may not be there yet.
func unlessBusy(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := call(ctx)
		if c := code.Of(err); c != wirev1.Code_CODE_UNAVAILABLE && c != wirev1.Code_CODE_OVERLOADED || ctx.Err() != nil {
			return err
		}
	}
}

// The issuers file is read again: tokens of who takes the place of another are taken, and the
// backends file goes by the issuers of now.
func TestIssuersAreReadAgain(t *testing.T) {
	t.Parallel()
	first, second := tokentest.New(t), tokentest.New(t)
	dir := t.TempDir()
	file, err := first.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "backends.yaml")
	if err := os.WriteFile(path, []byte("backends:\n- name: signed\n  roles: ['publisher:live/#']\n  tokens: [{issuer: test, sub: svc}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := startMesh(t, func(s *Settings) {
		s.Open, s.Backends, s.Issuers, s.OutboundAllow = false, path, file, []string{"127.0.0.1"}
	})
	publish := func(is *tokentest.Issuer) wirev1.Code {
		_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/1"}, grpc.PerRPCCredentials(bearer(is.Token("svc", nil))))
		return code.Of(err)
	}
	becomes := func(what string, is *tokentest.Issuer, want wirev1.Code) {
		t.Helper()
		eventually(t, what, func() error {
			if got := publish(is); got != want {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}
	becomes("the first is taken", first, wirev1.Code_CODE_OK)
	if got := publish(second); got != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Fatalf("the second: %v", got)
	}
	if _, err := second.Write(dir); err != nil {
		t.Fatal(err)
	}
	becomes("the second is taken", second, wirev1.Code_CODE_OK)
	if got := publish(first); got != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("the first, which is gone: %v", got)
	}
	if err := os.WriteFile(file, []byte("issuers: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fault is told", func() error {
		if m.router.tokens.Check() == nil {
			return errors.New("no fault")
		}
		return nil
	})
	if got := publish(second); got != wirev1.Code_CODE_OK {
		t.Errorf("a broken file: %v", got)
	}
	if err := m.sample(t, `pushmesh_router_issuers_reloads_total{result="failed"}`, "1"); err != nil {
		t.Error(err)
	}
	// an issuer of another name, which the backends file does not have any more
	if err := os.WriteFile(file, []byte(fmt.Sprintf("issuers:\n- name: next\n  url: %s\n  discovery: true\n  allow_insecure: true\n  audiences: [%s]\n", first.URL, tokentest.Audience)), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the backends file is found wrong", func() error {
		if err := m.router.backends.Check(); err == nil || !strings.Contains(err.Error(), `issuer "test" is none`) {
			return fmt.Errorf("the check says %w", err)
		}
		return nil
	})
	if err := os.WriteFile(path, []byte("backends:\n- name: signed\n  roles: ['publisher:live/#']\n  tokens: [{issuer: next, sub: svc}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	becomes("the backends file follows", first, wirev1.Code_CODE_OK)
}
