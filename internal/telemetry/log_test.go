package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// gate lets nothing through until it is opened, as a pipe that nobody reads.
type gate struct {
	open chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got.Write(b)
}

func TestLoggingNeverWaits(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	w := &logWriter{out: g}
	for i := range 3 * logQueue {
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Dropped(); n < 2*logQueue-1 {
		t.Fatalf("%d lines dropped of %d", n, 3*logQueue)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	w.flush(ctx) // gives up
	close(g.open)
	w.flush(t.Context())
	if lines := strings.Count(g.got.String(), "\n"); uint64(lines)+w.Dropped() != 3*logQueue || !strings.HasPrefix(g.got.String(), "line 0\nline 1\n") {
		t.Fatalf("%d lines and %d dropped, of %d", lines, w.Dropped(), 3*logQueue)
	}
	w.flush(t.Context())
	if _, err := w.Write([]byte("last\n")); err != nil {
		t.Fatal(err)
	}
	w.flush(t.Context())
	if !strings.HasSuffix(g.got.String(), "last\n") {
		t.Fatal("a line after the others was not written")
	}
}

// Who waits for its line goes on once that is written, whatever comes after it, and gives up with
// its context.
func TestWhoWaitsForItsLine(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	w := &logWriter{out: g}
	if !w.await(t.Context()) {
		t.Error("nothing was logged, and is not written")
	}
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := w.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if w.await(ended) {
		t.Error("it is written while nobody reads")
	}
	waits := make(chan string, 8)
	for range cap(waits) {
		go func() {
			if !w.await(t.Context()) {
				waits <- "gave up"
				return
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			waits <- g.got.String()
		}()
	}
	for range 2 {
		g.open <- struct{}{}
	}
	for range cap(waits) {
		if got := <-waits; got != "one\ntwo\n" {
			t.Errorf("who waited saw %q", got)
		}
	}
	if _, err := w.Write([]byte("three\n")); err != nil { // it stays
		t.Fatal(err)
	}
	close(g.open)
	w.flush(t.Context())
}

// A line of the audit finds room where a flood of others has left none, and is written before who
// waits for it goes on.
func TestAFloodPushesNoLineOfTheAuditOut(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	w := &logWriter{out: g}
	for i := range 3 * logQueue {
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * logQueue { // bounded as well
		if _, err := fmt.Fprintf(reserve{w}, "change %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	close(g.open)
	if !w.await(t.Context()) {
		t.Fatal("it gave up")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := strings.Count(g.got.String(), "change "); n < logQueue || n > logQueue+1 || !strings.Contains(g.got.String(), fmt.Sprintf("change %d\n", logQueue-1)) {
		t.Errorf("%d changes are in the log", n)
	}
}
