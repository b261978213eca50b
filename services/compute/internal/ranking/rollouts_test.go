package ranking

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// clocked are roll-outs with a clock that the test moves, and what they log.
func clocked() (all *rollouts, now *time.Time, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	all = newRollouts(slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
	at := time.Unix(1_000_000, 0)
	all.now = func() time.Time { return at }
	return all, &at, log
}

func halved() *pushmeshv1.ModelScorer {
	return &pushmeshv1.ModelScorer{Name: "ctr", Version: 1, NextVersion: 2, NextShare: 0.5}
}

// call has a version take so long for each of ten candidates; whose error is not nil it fails.
func call(all *rollouts, namespace string, m *pushmeshv1.ModelScorer, pinned, next time.Duration, err error) *trial {
	t := all.choose(namespace, m)
	if t.next {
		t.began()
		t.took(10*next, 10)
		if err != nil {
			t.erred(err)
		}
		return t
	}
	t.took(10*pinned, 10)
	return t
}

// Of the first n calls, share·n are the new version's, whatever n is, in each namespace on its own.
func TestTheShareIsExact(t *testing.T) {
	all, _, _ := clocked()
	for _, share := range []float64{0, 0.001, 0.1, 0.25, 1. / 3, 0.5, 0.7, 0.999, 1} {
		m := halved()
		m.NextShare = share
		for _, namespace := range []string{"a", "b"} {
			given := 0
			for n := 1; n <= 10_000; n++ {
				if c := all.choose(fmt.Sprint(namespace, share), m); c != nil && c.next {
					given++
				}
				if off := share*float64(n) - float64(given); math.Abs(off) > 1 {
					t.Fatalf("share %v: %d of %d", share, given, n)
				}
			}
			if want := int(share*10_000 + 1e-6); given != want {
				t.Errorf("share %v: %d of 10,000 calls, want %d", share, given, want)
			}
		}
	}
	for what, c := range map[string]*trial{
		"no namespace": all.choose("", halved()), "no model": all.choose("x", nil), "no next version": all.choose("x", &pushmeshv1.ModelScorer{Name: "ctr", Version: 1}),
	} {
		if c != nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

func TestErrorsFreeze(t *testing.T) {
	for _, c := range []struct {
		what   string
		most   float64
		failed func(n int) bool // of the calls of the new version, from 1
		frozen int              // after so many; 0: never
	}{
		{"all", 0, func(int) bool { return true }, leastCalls},
		{"one of twenty", 0, func(n int) bool { return n%20 == 0 }, 0},
		{"two of twenty", 0, func(n int) bool { return n%20 < 2 }, leastCalls},
		{"a quarter of twice as many", 0.5, func(n int) bool { return n%4 == 0 }, 0},
		{"after very many good ones", 0, func(n int) bool { return n > 10_000 }, 10_027},
	} {
		all, _, log := clocked()
		m := halved()
		m.MaxErrorShare = c.most
		frozen := 0
		for n := 0; n < 10_100 && frozen == 0; {
			var err error
			if n++; c.failed(n) {
				err = errors.New("candidate 7 is wrong")
			}
			call(all, "news", m, 1, 1, nil)
			if made := call(all, "news", m, 1, 1, err); !made.next {
				t.Fatalf("%s: call %d of the new version is not its", c.what, n)
			}
			if all.frozen() == 1 {
				frozen = n
			}
		}
		if frozen != c.frozen {
			t.Errorf("%s: frozen after %d calls, want %d", c.what, frozen, c.frozen)
		}
		if said := log.String(); frozen > 0 && (strings.Count(said, "roll-out frozen") != 1 || !strings.Contains(said, "next_version=2") || !strings.Contains(said, "candidate 7")) {
			t.Errorf("%s: the log says %q", c.what, said)
		}
		for range 100 {
			if frozen > 0 && call(all, "news", m, 1, 1, nil).next {
				t.Fatalf("%s: a frozen roll-out's new version is called", c.what)
			}
		}
	}
}

func TestSlownessFreezes(t *testing.T) {
	for _, c := range []struct {
		what string
		most float64
		next func(n int) time.Duration // where the pinned version takes 100
		want bool
	}{
		{"as fast", 0, func(int) time.Duration { return 100 }, false},
		{"thrice", 0, func(int) time.Duration { return 300 }, false},
		{"a bit more", 0, func(int) time.Duration { return 301 }, true},
		{"as much as it may", 50, func(int) time.Duration { return 5000 }, false},
		{"a standstill now and then", 0, func(n int) time.Duration {
			if n%60 == 0 {
				return time.Second
			}
			return 100
		}, false},
		{"from some time on", 0, func(n int) time.Duration {
			if n > 3000 {
				return 1000
			}
			return 100
		}, true},
	} {
		all, _, log := clocked()
		m := halved()
		m.MaxSlowdown = c.most
		for n := range 4000 {
			call(all, "news", m, 100, c.next(n), nil)
		}
		if got := all.frozen() == 1; got != c.want || c.want != strings.Contains(log.String(), "s for a candidate, version 1 takes 1e-07 s") {
			t.Errorf("%s: frozen: %v; the log says %q", c.what, got, log.String())
		}
	}
	// A window that no candidate was scored in says nothing.
	all, _, _ := clocked()
	for range 1000 {
		c := all.choose("news", halved())
		c.took(map[bool]time.Duration{false: 1, true: time.Second}[c.next], 0)
	}
	if all.frozen() != 0 {
		t.Error("frozen for calls without candidates")
	}
}

func TestAnotherPolicyBeginsAnew(t *testing.T) {
	all, now, _ := clocked()
	freeze := func(namespace string, m *pushmeshv1.ModelScorer) {
		t.Helper()
		for range 2 * leastCalls {
			call(all, namespace, m, 1, 1, errors.New("no"))
		}
		if call(all, namespace, m, 1, 1, nil); all.known[namespace][len(all.known[namespace])-1].frozen != true {
			t.Fatal("not frozen")
		}
	}
	tried := func(namespace string, m *pushmeshv1.ModelScorer) bool {
		first := all.choose(namespace, m)
		second := all.choose(namespace, m)
		return first != nil && (first.next || second.next)
	}
	freeze("news", halved())
	freeze("other", halved())
	*now = now.Add(forgetAfter - 1)
	if tried("news", halved()) || tried("other", halved()) {
		t.Error("time alone has unfrozen it")
	}
	again := halved()
	again.NextVersion = 3
	if !tried("news", again) {
		t.Error("another next version gets no calls")
	}
	// A router that has the policy before still is no reason to try it again, nor to begin anew.
	if tried("news", halved()) || !tried("news", again) {
		t.Error("while routers learn of a policy, each version has a plan of its own")
	}
	if n := all.frozen(); n != 2 {
		t.Errorf("%d frozen, want 2", n)
	}
	*now = now.Add(staleAfter + 1)
	all.choose("news", again)
	if n := all.frozen(); n != 1 {
		t.Errorf("%d frozen once the policy is replaced, want 1", n)
	}
	if !tried("news", halved()) {
		t.Error("the policy put back is not tried again")
	}
	if tried("other", halved()) {
		t.Error("another namespace's policy has unfrozen it")
	}
	// Rolled back.
	*now = now.Add(staleAfter + 1)
	if c := all.choose("other", &pushmeshv1.ModelScorer{Name: "ctr", Version: 1}); c != nil || all.frozen() != 0 || len(all.known["other"]) != 0 {
		t.Errorf("rolled back: %+v, %d frozen", c, all.frozen())
	}
	// Or deleted: there are no calls any more.
	freeze("gone", halved())
	*now = now.Add(forgetAfter + 1)
	if all.frozen() != 0 || len(all.known) != 0 || all.count != 0 {
		t.Errorf("%d are known for ever", len(all.known))
	}
}

func TestRolloutsAreBounded(t *testing.T) {
	all, now, _ := clocked()
	for n := range 2 * maxRollouts {
		*now = now.Add(time.Millisecond)
		all.choose(fmt.Sprint("n", n), halved())
	}
	if all.count != maxRollouts || len(all.known) != maxRollouts || all.known["n0"] != nil || all.known[fmt.Sprint("n", maxRollouts)] == nil {
		t.Errorf("%d of %d namespaces", all.count, len(all.known))
	}
}
