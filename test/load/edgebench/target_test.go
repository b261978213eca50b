package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
)

// bareLoops builds the bare loop as scripts/bench-setup does.
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
	b := &bench{config: &config{bare: bareLoops(t), size: 128}, dir: local.Dir(t.TempDir())}
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
	b := &bench{config: &config{bare: t.TempDir(), size: 128}, dir: local.Dir(t.TempDir())}
	if _, err := b.peerTarget(t.Context(), bareURing, 1); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Fatalf("got %v", err)
	}
}

func TestRatioIsTakenRoundByRound(t *testing.T) {
	// The machine was three times slower in the second round: that meets both.
	if got := ratio([]float64{2, 6, 2}, []float64{1, 3, 1}); got != 2 {
		t.Fatalf("got %v", got)
	}
	if got := ratio(nil, []float64{1}); got != 0 {
		t.Fatalf("got %v", got)
	}
}

func TestFlags(t *testing.T) {
	if _, err := parse([]string{"-conns", "0"}); err == nil {
		t.Error("no connections were accepted")
	}
	if _, err := parse([]string{"-only", "("}); err == nil {
		t.Error("a broken pattern was accepted")
	}
	c, err := parse([]string{"-only", "idle|latency"})
	if err != nil || !c.only.MatchString("idle") || c.only.MatchString("delivery") {
		t.Errorf("got %v", err)
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
		script := filepath.Join(t.TempDir(), "budget")
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+c.says+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		b := &bench{config: &config{budget: script}}
		err := b.allocations(t.Context())
		if c.fails {
			if err == nil {
				t.Errorf("%s: got %v", name, b.rows)
			}
			continue
		}
		if err != nil || len(b.rows) != 1 || b.rows[0].Value != c.value || *b.rows[0].Met != (c.value == 0) {
			t.Errorf("%s: got %v, %v", name, b.rows, err)
		}
	}
}

func TestFiguresAreRead(t *testing.T) {
	text := "# HELP x\n" + mallocs + " 1.5e+06\n" + writes + " 12\n" + loops + " 2\n" + fullest + " 7\nother{code=\"OK\"} 3\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	defer srv.Close()
	p := &local.Process{Name: "edge", HTTP: srv.Listener.Addr().String()}
	got, err := figures(t.Context(), p)
	if err != nil || got[mallocs] != 1.5e6 || got[writes] != 12 || got[fullest] != 7 {
		t.Fatalf("got %v, %v", got, err)
	}
	text = "nothing 1\n"
	if _, err := figures(t.Context(), p); err == nil {
		t.Fatal("figures that aren't there were read")
	}
}
