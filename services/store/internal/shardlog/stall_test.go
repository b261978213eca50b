package shardlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// While a commit hangs, what comes after it is refused at once; what hangs gets the answer that is
// true.
func TestAStalledCommitHoldsUpNobody(t *testing.T) {
	l, f := start(t, backendtest.Stalling)
	release := make(chan struct{})
	f.set(func(f *faulty) {
		f.commit = func(w backend.Writer, b *backend.Batch) error {
			<-release
			return w.Commit(context.Background(), b)
		}
	})
	hung := make(chan *meshv1.AppendResult, 2)
	for range 2 { // the first hangs in its commit, the second waits behind it or is of its group
		go func() { hung <- l.Append(t, backendtest.Item("room/1", "hung"))[0] }()
	}
	for deadline := time.Now().Add(backendtest.Patience); l.Check() == nil; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody notices")
		}
	}
	best := time.Hour
	for deadline := time.Now().Add(backendtest.Patience / 4); best > 10*time.Millisecond && time.Now().Before(deadline); {
		// the machine may be busy
		begun := time.Now()
		r := l.Append(t, backendtest.Item("room/2", "later"))[0]
		best = min(best, time.Since(begun))
		if r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
			t.Fatalf("behind a commit that hangs: %v", r)
		}
	}
	if best > 10*time.Millisecond {
		t.Errorf("refused only after %s", best)
	}
	close(release)
	committed := 0
	for range 2 {
		switch r := <-hung; {
		case r.GetCode() == wirev1.Code_CODE_OK:
			committed++
		case r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0:
			t.Errorf("%v", r)
		}
	}
	if got := len(l.Bodies(t, "room/1")); got != committed || committed == 0 {
		t.Errorf("%d in the log, %d answered OK", got, committed)
	}
	for deadline := time.Now().Add(backendtest.Patience); l.Check() != nil; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(l.Check())
		}
	}
	if r := l.Append(t, backendtest.Item("room/2", "x"))[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 1 {
		t.Errorf("afterwards: %v", r)
	}
}
