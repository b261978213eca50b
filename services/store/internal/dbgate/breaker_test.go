package dbgate

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fails opens a breaker.
func fails(t *testing.T, b *Breaker, n int, now time.Time) {
	t.Helper()
	for range n {
		p, ok := b.Enter(now)
		if !ok {
			t.Fatal("refused while closed")
		}
		b.Leave(p, Failed, now)
	}
}

func TestBreakerOpensAfterFailuresInARow(t *testing.T) {
	var b Breaker
	fails(t, &b, failuresToOpen-1, epoch)
	p, _ := b.Enter(epoch)
	b.Leave(p, Answered, epoch) // breaks the row
	fails(t, &b, failuresToOpen-1, epoch)
	for _, o := range []Outcome{Abandoned, PoolExhausted, Abandoned, PoolExhausted} {
		// say nothing about the database
		p, _ := b.Enter(epoch)
		b.Leave(p, o, epoch)
	}
	if b.State() != Closed {
		t.Fatal("open too soon")
	}
	fails(t, &b, 1, epoch)
	if _, ok := b.Enter(epoch); ok || b.State() != Open {
		t.Errorf("let through while %s", b.State())
	}
}

func TestBreakerClosesAfterTwoProbesAndRampsUp(t *testing.T) {
	var b Breaker
	now := epoch
	fails(t, &b, failuresToOpen, now)
	for i := range successesToClose {
		if _, ok := b.Enter(now.Add(ProbeEvery - 1)); ok {
			t.Fatal("a probe came early")
		}
		now = now.Add(ProbeEvery)
		p, ok := b.Enter(now)
		if !ok || b.State() != HalfOpen {
			t.Fatalf("probe %d: %v, %s", i, ok, b.State())
		}
		if _, ok := b.Enter(now.Add(time.Hour)); ok {
			t.Fatal("two probes at once")
		}
		b.Leave(p, Answered, now)
	}
	if b.State() != Closed || b.Share(now) != rampFrom || b.Share(now.Add(ramp)) != 1 {
		t.Errorf("%s, %v, %v", b.State(), b.Share(now), b.Share(now.Add(ramp)))
	}
	if half := b.Share(now.Add(ramp / 2)); half < 0.5 || half > 0.6 {
		t.Errorf("half way up: %v", half)
	}
}

func TestBreakerForgetsWhatBeganBefore(t *testing.T) {
	var b Breaker
	var old []Pass
	for range 20 {
		p, _ := b.Enter(epoch)
		old = append(old, p)
	}
	fails(t, &b, failuresToOpen, epoch)
	now := epoch
	for range successesToClose {
		now = now.Add(ProbeEvery)
		p, _ := b.Enter(now)
		b.Leave(p, Answered, now)
	}
	for _, p := range old { // they fail only now, of what opened it
		b.Leave(p, Failed, now)
	}
	if b.State() != Closed {
		t.Error("opened again by what began before it opened")
	}
}

// Whatever happens, probes come alone and apart, and two in a row must succeed.
func TestBreakerProbes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Breaker
		now := epoch
		var lastProbe time.Time
		var under []Pass
		probes, row := 0, 0
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Millisecond)
			if p, ok := b.Enter(now); ok {
				if p.probe {
					if probes++; probes > 1 {
						t.Fatal("two probes at once")
					}
					if now.Sub(lastProbe) < ProbeEvery {
						t.Fatalf("probes %s apart", now.Sub(lastProbe))
					}
					lastProbe = now
				} else if b.State() != Closed {
					t.Fatalf("let through while %s", b.State())
				}
				under = append(under, p)
			}
			if len(under) == 0 || rapid.Bool().Draw(t, "wait") {
				continue
			}
			i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
			p, o := under[i], Outcome(rapid.IntRange(0, 3).Draw(t, "outcome"))
			under = append(under[:i], under[i+1:]...)
			before := b.State()
			b.Leave(p, o, now)
			if p.probe {
				probes--
				if o == Answered {
					row++
				} else {
					row = 0
				}
			}
			if before != Closed && b.State() == Closed {
				if row < successesToClose {
					t.Fatalf("closed after %d probes", row)
				}
				row = 0
			}
			if s := b.Share(now); s < rampFrom || s > 1 {
				t.Fatalf("share %v", s)
			}
		}
	})
}

// A database that answers every other probe for a while and fails under load does not make the
// breaker flap, and is found again within seconds.
func TestBreakerDoesNotFlap(t *testing.T) {
	var b Breaker
	now, until := epoch, epoch.Add(time.Minute)
	for ; now.Before(until); now = now.Add(time.Millisecond) {
		if p, ok := b.Enter(now); ok {
			if p.probe {
				b.Leave(p, Answered, now) // alone it does well
			} else {
				b.Leave(p, Failed, now)
			}
		}
	}
	if b.Opened() > 25 {
		t.Errorf("opened %d times within a minute", b.Opened())
	}
	for back := now; b.State() != Closed; now = now.Add(time.Millisecond) {
		if p, ok := b.Enter(now); ok {
			b.Leave(p, Answered, now)
		}
		if now.Sub(back) > 4*time.Second {
			t.Fatal("still open 4 s after the database is back")
		}
	}
}
