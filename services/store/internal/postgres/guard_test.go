package postgres

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// fail lets n questions go unanswered.
func fail(t *testing.T, g *guard, n int) {
	t.Helper()
	for range n {
		leave, err := g.enter()
		if err != nil {
			t.Fatal(err)
		}
		leave(silent)
	}
}

func TestGuardOpensAfterFailuresInARow(t *testing.T) {
	g := newGuard(time.Now)
	fail(t, g, failuresToOpen-1)
	leave, err := g.enter()
	if err != nil {
		t.Fatal(err)
	}
	leave(answered) // breaks the row
	fail(t, g, failuresToOpen-1)
	for range 10 { // says nothing about the database
		leave, err := g.enter()
		if err != nil {
			t.Fatal(err)
		}
		leave(abandoned)
	}
	fail(t, g, 1)
	_, err = g.enter()
	if e := code.From(err); e == nil || e.Code != wirev1.Code_CODE_UNAVAILABLE || e.RetryAfter == 0 {
		t.Errorf("got %v", err)
	}
	if g.refusals() != 1 || !g.open() {
		t.Errorf("%d refusals, open %v", g.refusals(), g.open())
	}
}

func TestGuardProbesOneAtATimeAndApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(time.Now)
		fail(t, g, failuresToOpen)
		probes := 0
		var last time.Time
		for begin := time.Now(); time.Since(begin) < 3*time.Second; <-time.After(10 * time.Millisecond) {
			leave, err := g.enter()
			if err != nil {
				continue
			}
			probes++
			if apart := time.Since(last); apart < probeEvery {
				t.Fatalf("probes %s apart", apart)
			}
			last = time.Now()
			if _, err := g.enter(); err == nil {
				t.Fatal("two probes at once")
			}
			leave(silent)
		}
		if probes < 10 {
			t.Errorf("%d probes within 3 s", probes)
		}
	})
}

func TestGuardClosesAfterTwoProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(time.Now)
		fail(t, g, failuresToOpen)
		for i := range successesToClose {
			<-time.After(probeEvery)
			if !g.open() {
				t.Fatalf("closed after %d probes", i)
			}
			leave, err := g.enter()
			if err != nil {
				t.Fatal(err)
			}
			leave(answered)
		}
		if g.open() {
			t.Error("still open")
		}
	})
}

func TestGuardAbandonedProbeIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(time.Now)
		fail(t, g, failuresToOpen)
		for range 5 {
			<-time.After(probeEvery)
			leave, err := g.enter()
			if err != nil {
				t.Fatal(err)
			}
			leave(abandoned)
		}
		if !g.open() {
			t.Error("probes that were given up closed it")
		}
	})
}
