package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// logged keeps what is logged.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) has(parts ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, part := range parts {
		if !strings.Contains(l.buf.String(), part) {
			return fmt.Errorf("no %q in %s", part, l.buf.String())
		}
	}
	return nil
}

// A loop that has not turned for 5 s makes the edge not ready and is logged with its stack; /livez
// does not mind, the other loop goes on, and once the loop turns the edge is ready.
func TestLoopThatDoesNotTurnFailsReadyz(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e, err := New(t.Context(), w.settings("e1"))
	if err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	e.watch.log = slog.New(slog.NewTextHandler(log, nil))
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() {})
	t.Cleanup(func() {
		release()
		ctx, cancel := context.WithTimeout(context.Background(), edgetest.Patience)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	get := func(path string, want int, part string) func() error {
		return func() error {
			resp, err := http.Get("http://" + e.HTTPAddr() + path)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != want || !strings.Contains(string(body), part)) {
				err = errors.New("not yet")
			}
			if err != nil {
				return fmt.Errorf("%s: %d %w: %s", path, resp.StatusCode, err, body)
			}
			return nil
		}
	}
	edgetest.WaitFor(t, "/readyz", get("/readyz?verbose", http.StatusOK, "loops: ok"))

	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	e.loops[0].Post(exchange.Count{Reply: func([]uint64) { <-held }}) // answered on the loop
	edgetest.WaitFor(t, "the loop to hang for a while", func() error {
		if since := time.Since(e.loops[0].LastTurn()); since < 4*time.Second {
			return fmt.Errorf("it turned %v ago", since)
		}
		return nil
	})
	edgetest.WaitFor(t, "/readyz of an edge whose loop hangs", get("/readyz?verbose", http.StatusServiceUnavailable, "loop 0 has been stalled for"))
	edgetest.WaitFor(t, "the log", func() error { return log.has("a loop is stalled", "loop=0", "watch_test.go", "(*Loop).turn") })
	if err := get("/livez", http.StatusOK, "")(); err != nil {
		t.Fatal(err)
	}
	edgetest.WaitFor(t, "the other loop", e.loops[1].Check)
	release()
	edgetest.WaitFor(t, "/readyz of an edge whose loop turns again", get("/readyz?verbose", http.StatusOK, "loops: ok"))
	edgetest.WaitFor(t, "the log", func() error { return log.has("runs again", "a loop was blocked") })
	w.client(e, &wirev1.Hello{})
}
