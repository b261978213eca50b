package procmesh

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/process"
)

// Process is one child process of a test.
type Process = process.Process

// ends has processes end with the test, the last first, and shows their logs if it failed.
func ends(t testing.TB, ps ...*Process) {
	t.Cleanup(func() {
		for _, p := range slices.Backward(ps) {
			p.Kill()
			if t.Failed() {
				t.Logf("--- %s %s\n%s", p.Name, strings.Join(p.Args, " "), p.Tail(4000))
			}
		}
	})
}

// patience is how long anything may take that must happen; a busy machine is no failure.
const patience = 2 * time.Minute

// Await polls until ok, patience at most; what names it in the failure.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		}
	}
}
