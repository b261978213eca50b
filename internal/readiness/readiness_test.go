package readiness

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/health"
)

func TestAwaitsWhatIsMissingOrDegraded(t *testing.T) {
	var fault atomic.Pointer[error]
	checks := &health.Checks{}
	ask := func() error {
		if err := fault.Load(); err != nil {
			return *err
		}
		return nil
	}
	checks.Report("store", ask)
	srv := health.NewServer("127.0.0.1:0", checks, prometheus.NewRegistry())
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Stop(context.Background()) })

	away := errors.New("away")
	fault.Store(&away)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Await(short, srv.Addr(), nil); err == nil {
		t.Fatal("ready although the store is away")
	}
	err := Ask(t.Context(), srv.Addr())
	for errors.Is(err, context.DeadlineExceeded) {
		// a busy machine may keep the answer for longer than Ask waits
		err = Ask(t.Context(), srv.Addr())
	}
	if err == nil || !strings.Contains(err.Error(), "store: degraded: away") {
		t.Fatalf("got %v", err)
	}
	fault.Store(nil)
	if err := Await(t.Context(), srv.Addr(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestAwaitEndsWithTheProcess(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	if err := Await(t.Context(), "127.0.0.1:1", ended); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Fatalf("got %v", err)
	}
}

func TestJudge(t *testing.T) {
	for text, good := range map[string]bool{
		"nats: ok\nready\n": true,
		"":                  true,
		"nats: missing: not connected\nnot ready\n": false,
		"nats: degraded: not connected\nready\n":    false,
	} {
		if err := judge(200, text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	if judge(503, "") == nil {
		t.Error("503 is not ready")
	}
}
