package prepare_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/prepare"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

const patience = time.Minute

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %s: %s", patience, what)
		panic("unreachable")
	}
}

// loopback allows what tests listen on.
func loopback(t *testing.T) *outbound.Guard {
	t.Helper()
	allow, err := outbound.ParseAllow([]string{"127.0.0.1", "::1"})
	need(t, err)
	return outbound.New(outbound.Config{Metric: "pushmesh_store_outbound_refused_total", Allow: allow})
}

func pool(t *testing.T, cfg prepare.Config) *prepare.Pool {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = loopback(t)
	}
	p := prepare.New(cfg)
	t.Cleanup(func() { need(t, p.Stop(context.Background())) })
	return p
}

// ask begins a call; its code comes on the channel.
func ask(ctx context.Context, p *prepare.Pool, token uint64, how policy.Prepare) <-chan wirev1.Code {
	done := make(chan wirev1.Code, 2)
	if how.Deadline == 0 {
		how.Deadline = patience
	}
	if how.Concurrency == 0 {
		how.Concurrency = 1
	}
	p.Ask(prepare.Job{Context: ctx, Resource: "room/1", Owner: "ann", Token: token, How: &how, Done: func(c wirev1.Code) { done <- c }})
	return done
}

func web(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func TestHTTP(t *testing.T) {
	p := pool(t, prepare.Config{})
	got := make(chan *pushmeshv1.PrepareRequest, 1)
	followed := atomic.Bool{}
	url := web(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			body, _ := io.ReadAll(r.Body)
			req := &pushmeshv1.PrepareRequest{}
			if err := protojson.Unmarshal(body, req); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %q: %v", r.Method, body, err)
			}
			got <- req
			w.WriteHeader(http.StatusNoContent)
		case "/no":
			w.WriteHeader(http.StatusConflict)
		case "/redirect":
			http.Redirect(w, r, "/followed", http.StatusTemporaryRedirect)
		case "/followed":
			followed.Store(true)
		case "/late":
			// else the server does not see that the caller has gone
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}
	})
	free, err := ports.Addr() // where nobody listens, nor will
	need(t, err)
	for _, c := range []struct {
		url      string
		deadline time.Duration
		want     wirev1.Code
	}{
		{url + "/ok", 0, wirev1.Code_CODE_OK},
		{url + "/no", 0, wirev1.Code_CODE_FORBIDDEN},
		{url + "/redirect", 0, wirev1.Code_CODE_FORBIDDEN},
		{url + "/late", 20 * time.Millisecond, wirev1.Code_CODE_ACK_TIMEOUT},
		{url + "/endless", 0, wirev1.Code_CODE_OK},
		{"http://" + free, 0, wirev1.Code_CODE_UNAVAILABLE},
	} {
		if got := get(t, ask(t.Context(), p, 1<<60, policy.Prepare{URL: c.url, Deadline: c.deadline}), c.url); got != c.want {
			t.Errorf("%s: %v, want %v", c.url, got, c.want)
		}
	}
	if r := get(t, got, "the request"); r.GetResource() != "room/1" || r.GetOwner() != "ann" || r.GetToken() != 1<<60 {
		t.Errorf("%v", r)
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

// service is a PrepareService; an owner's token says what it does.
type service struct {
	pushmeshv1.UnimplementedPrepareServiceServer
}

func (service) Prepare(ctx context.Context, req *pushmeshv1.PrepareRequest) (*pushmeshv1.PrepareResponse, error) {
	switch req.GetToken() {
	case 1:
		return &pushmeshv1.PrepareResponse{}, nil
	case 2:
		return nil, status.Error(codes.FailedPrecondition, "no")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestGRPC(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	need(t, err)
	ended := make(chan struct{})
	s := grpc.NewServer()
	pushmeshv1.RegisterPrepareServiceServer(s, service{})
	counted := &conns{Listener: lis, closed: make(chan struct{}, 100)}
	go func() { _ = s.Serve(counted); close(ended) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	p := pool(t, prepare.Config{Idle: 100 * time.Millisecond})
	url := "grpc://" + lis.Addr().String()
	for token, want := range map[uint64]wirev1.Code{1: wirev1.Code_CODE_OK, 2: wirev1.Code_CODE_FORBIDDEN, 3: wirev1.Code_CODE_ACK_TIMEOUT} {
		how := policy.Prepare{URL: url}
		if token == 3 {
			how.Deadline = 50 * time.Millisecond
		}
		if got := get(t, ask(t.Context(), p, token, how), "an answer"); got != want {
			t.Errorf("%d: %v, want %v", token, got, want)
		}
	}
	get(t, counted.closed, "the connection is closed once unused")
	if got := get(t, ask(t.Context(), p, 1, policy.Prepare{URL: url}), "an answer on a new connection"); got != wirev1.Code_CODE_OK {
		t.Error(got)
	}
}

// conns tells of connections that were closed.
type conns struct {
	net.Listener
	closed chan struct{}
}

func (c *conns) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return &closing{Conn: conn, closed: c.closed}, err
}

type closing struct {
	net.Conn
	closed chan struct{}
}

func (c *closing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.closed <- struct{}{}
	}
	return n, err
}

// Calls of a group are made in their order, so many at a time; another group's don't wait for them.
func TestOrderAndConcurrency(t *testing.T) {
	came, leave := make(chan string, 100), make(chan struct{})
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		req := &pushmeshv1.PrepareRequest{}
		need(t, protojson.Unmarshal(body, req))
		came <- fmt.Sprint(r.URL.Path, req.GetToken())
		if !strings.HasPrefix(r.URL.Path, "/other") {
			<-leave
		}
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	p := pool(t, prepare.Config{Waiting: 10})
	mine := policy.Prepare{Group: "a", URL: s.URL + "/a", Concurrency: 2}
	var all []<-chan wirev1.Code
	for token := range uint64(12) {
		all = append(all, ask(t.Context(), p, token, mine))
	}
	if a, b := get(t, came, "one"), get(t, came, "two"); a+b != "/a0/a1" && a+b != "/a1/a0" {
		t.Errorf("began with %s and %s", a, b)
	}
	if got := get(t, ask(t.Context(), p, 99, mine), "a refusal"); got != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("one more than may wait: %v", got)
	}
	if got := get(t, ask(t.Context(), p, 7, policy.Prepare{Group: "b", URL: s.URL + "/other"}), "another group"); got != wirev1.Code_CODE_OK {
		t.Error(got)
	}
	if got := get(t, came, "another group's"); got != "/other7" {
		t.Error(got)
	}
	for token := 2; token < 12; token++ {
		leave <- struct{}{}
		if got := get(t, came, "the next"); got != fmt.Sprint("/a", token) {
			t.Errorf("%s came, want /a%d", got, token)
		}
	}
	close(leave)
	for _, c := range all {
		if got := get(t, c, "an answer"); got != wirev1.Code_CODE_OK {
			t.Error(got)
		}
	}
	if n := opened.Load(); n > 3 {
		t.Errorf("%d connections for 3 calls at a time", n)
	}
}

// Who is not wanted any more is not asked for; what is under way ends.
func TestCancelled(t *testing.T) {
	came := make(chan struct{}, 10)
	url := web(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came <- struct{}{}
		<-r.Context().Done()
	})
	p := prepare.New(prepare.Config{Guard: loopback(t)})
	ctx, cancel := context.WithCancel(t.Context())
	how := policy.Prepare{URL: url}
	first, second := ask(ctx, p, 1, how), ask(ctx, p, 2, how)
	get(t, came, "the first")
	cancel()
	if a, b := get(t, first, "the first's end"), get(t, second, "the second's end"); a != wirev1.Code_CODE_CANCELLED || b != a {
		t.Errorf("%v, %v", a, b)
	}
	third, fourth := ask(t.Context(), p, 3, how), ask(t.Context(), p, 4, how)
	get(t, came, "the third")
	need(t, p.Stop(t.Context()))
	if a, b := get(t, third, "the third's end"), get(t, fourth, "the fourth's end"); a != wirev1.Code_CODE_CANCELLED || b != a {
		t.Errorf("stopped: %v, %v", a, b)
	}
	if got := get(t, ask(t.Context(), p, 5, how), "a refusal"); got != wirev1.Code_CODE_CANCELLED {
		t.Errorf("after the end: %v", got)
	}
	if len(came) != 0 {
		t.Error("a call that nobody wanted was made")
	}
}
