package edge

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
)

// bareLoops builds the bare loop as scripts/bench does.
func bareLoops(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("gcc", "-O2", "-o", filepath.Join(dir, bareWrite), "../bare/bare.c").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	return dir
}

func TestPumpCountsEveryDelivery(t *testing.T) {
	b := &bench{Run: &suite.Run{Tools: bareLoops(t), Dir: local.Dir(t.TempDir())}, size: 128}
	tg, err := b.peerTarget(t.Context(), bareWrite, 50)
	if err != nil {
		t.Fatal(err)
	}
	for _, window := range []int{1, 64} {
		s, err := tg.Pump(t.Context(), window, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(s.Deliveries) != tg.Swarm.Received() || s.Deliveries < 50*window || s.CPU <= 0 || s.Wall < 100*time.Millisecond {
			t.Errorf("window %d: %+v, and the swarm received %d", window, s, tg.Swarm.Received())
		}
	}
	if err := tg.close(); err != nil {
		t.Fatal(err)
	}
	if tg.server.Running() {
		t.Fatal("the server outlived its target")
	}
}

func TestWhatIsNotThereIsNotInstalled(t *testing.T) {
	b := &bench{Run: &suite.Run{Tools: t.TempDir(), Dir: local.Dir(t.TempDir())}, size: 128}
	if _, err := b.peerTarget(t.Context(), bareURing, 1); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Fatalf("got %v", err)
	}
}

func TestBudgetFaultIsRead(t *testing.T) {
	found := budgetFault.FindStringSubmatch("budget_test.go:111: 250 allocations for 100 deliveries")
	if len(found) != 3 || found[1] != "250" || found[2] != "100" {
		t.Fatalf("got %q", found)
	}
}

func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		says  string
		value float64
		fails bool
	}{
		"met":       {"echo '--- PASS: TestDeliveryMakesNoGarbage'", 0, false},
		"missed":    {"echo '250 allocations for 100 deliveries'; exit 1", 2.5, false},
		"never ran": {"echo PASS", 0, true},
		"broken":    {"exit 1", 0, true},
	} {
		tools := t.TempDir()
		script := filepath.Join(tools, "budget")
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+c.says+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		b := &bench{Run: &suite.Run{Tools: tools}}
		err := b.allocations(t.Context())
		if c.fails {
			if err == nil {
				t.Errorf("%s: got %v", name, b.Rows())
			}
			continue
		}
		if err != nil || len(b.Rows()) != 1 || b.Rows()[0].Value != c.value || *b.Rows()[0].Met != (c.value == 0) {
			t.Errorf("%s: got %v, %v", name, b.Rows(), err)
		}
	}
}
