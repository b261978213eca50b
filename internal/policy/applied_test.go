package policy

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// node by which others ask for the watch of that store.
func node(s *store) string { return fmt.Sprintf("edge.%p", s) }

// Whoever changed the namespaces knows who goes by the change: each process says so once its table
// applies, and not before.
func TestWatchSettlesOnceEveryProcessGoesByTheVersion(t *testing.T) {
	nats := &wires{}
	here, there := &store{}, &store{}
	here.set(false, 7)
	there.set(false, 7)
	w, _ := startOn(t, here, nats)
	other, _ := startOn(t, there, nats)

	here.set(false, 8, durable("orders"))
	settled := make(chan []string, 1)
	go func() { settled <- w.AwaitVersion(t.Context(), 8, []string{node(here), node(there)}) }()
	for here8 := time.Now(); w.Version() < 8; <-time.After(time.Millisecond) {
		if time.Since(here8) > time.Minute {
			t.Fatal("the process that asks does not learn of the version")
		}
	}
	select {
	case lagging := <-settled:
		t.Fatalf("settled (lagging: %v) while a process goes by version %d", lagging, other.Version())
	default:
	}
	there.set(false, 8, durable("orders"))
	if lagging := <-settled; len(lagging) > 0 {
		t.Errorf("lagging: %v", lagging)
	}
	if !other.Table().For("orders/1").Durable {
		t.Error("a process answered before it went by the version")
	}
}

// One that is away, does not know the version in time, or is of an older program, is named, and so
// is the process that asks.
func TestWatchNamesProcessesThatLag(t *testing.T) {
	nats := &wires{}
	here, there := &store{}, &store{}
	here.set(false, 7)
	there.set(false, 7)
	w, _ := startOn(t, here, nats)
	startOn(t, there, nats)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	lagging := w.AwaitVersion(ctx, 8, []string{node(there), "edge.gone"})
	if got, want := fmt.Sprint(lagging), 3; len(lagging) != want {
		t.Errorf("lagging: %s, want %d of them", got, want)
	}
}
