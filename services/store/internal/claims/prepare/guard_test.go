package prepare_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/prepare"
)

// A policy's URL does not reach what is not listed, by whatever way its host is written; neither by
// HTTP nor by gRPC.
func TestWhatIsNotListedIsNotCalled(t *testing.T) {
	var came atomic.Int32
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	need(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = lis.Close(); <-ended })
	_, port, err := net.SplitHostPort(lis.Addr().String())
	need(t, err)
	// What a proxy of the environment would connect to is out of the guard's sight.
	t.Setenv("HTTP_PROXY", "http://"+lis.Addr().String())
	t.Setenv("ALL_PROXY", "http://"+lis.Addr().String())
	p := pool(t, prepare.Config{Guard: outbound.New(outbound.Config{Metric: "pushmesh_store_outbound_refused_total"})})
	for _, url := range []string{
		"http://127.0.0.1:" + port, "https://127.0.0.1:" + port, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port,
		"http://0.0.0.0:" + port, "http://[::]:" + port, "http://169.254.169.254/latest/meta-data/",
	} {
		if got := get(t, ask(t.Context(), p, 1, policy.Prepare{URL: url}), url); got != wirev1.Code_CODE_UNAVAILABLE {
			t.Errorf("%s: %v, want UNAVAILABLE", url, got)
		}
	}
	for _, url := range []string{"http://ann:secret@127.0.0.1:" + port, "grpc://ann:secret@127.0.0.1:" + port, "ftp://127.0.0.1:" + port} {
		if got := get(t, ask(t.Context(), p, 1, policy.Prepare{URL: url}), url); got != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", url, got)
		}
	}
	rpc := policy.Prepare{URL: "grpc://localhost:" + port, Deadline: 300 * time.Millisecond}
	if got := get(t, ask(t.Context(), p, 1, rpc), rpc.URL); got == wirev1.Code_CODE_OK {
		t.Error("gRPC was answered OK")
	}
	if n := came.Load(); n != 0 {
		t.Errorf("%d connections came to what is not listed", n)
	}
}

// Calls are signed by Standard Webhooks; a repeated one has the same id.
func TestCallsAreSigned(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // the specification's
	file := filepath.Join(t.TempDir(), "secret")
	need(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	signer, err := outbound.OpenSecret(file, time.Now)
	need(t, err)
	key, err := webhooks.NewWebhook(secret)
	need(t, err)
	ids := make(chan string, 10)
	url := web(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := key.Verify(body, r.Header); err != nil {
			t.Errorf("%v: %q", err, r.Header)
		}
		if key.Verify(append(body, ' '), r.Header) == nil {
			t.Error("a body that was changed has a good signature")
		}
		ids <- r.Header.Get("webhook-id")
	})
	p := pool(t, prepare.Config{Secret: signer})
	for _, token := range []uint64{1, 1, 2} {
		if got := get(t, ask(t.Context(), p, token, policy.Prepare{URL: url}), "an answer"); got != wirev1.Code_CODE_OK {
			t.Fatal(got)
		}
	}
	if a, b, c := get(t, ids, "a"), get(t, ids, "b"), get(t, ids, "c"); a != b || b == c || !strings.HasPrefix(a, "prepare_") {
		t.Errorf("ids %s, %s, %s", a, b, c)
	}
}
