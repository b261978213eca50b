package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var k = Key{"$group", "g/t"}

func TestALeaseIsExclusiveUntilItRunsOut(t *testing.T) {
	table, now := New(), time.Now()
	if v, _, last := table.Begin(now, k, "a", 1); v != Free || last != 0 {
		t.Fatal(v, last)
	}
	if v, _, _ := table.Begin(now, k, "b", 1); v != Busy {
		t.Fatalf("%v while it is being granted", v)
	}
	table.Granted(k, "a", 1, 1, now.Add(time.Second))
	if v, holder, _ := table.Begin(now.Add(time.Second-1), k, "b", 1); v != OtherEdge || holder != "a" {
		t.Fatal(v, holder)
	}
	if v, _, last := table.Begin(now.Add(time.Second), k, "b", 1); v != Free || last != 1 {
		t.Fatal(v, last)
	}
	if table.Renew(k, "a", 1, 1, now.Add(9*time.Second)) {
		t.Fatal("renewed while another is being granted it")
	}
	table.Abort(k)
	if !table.Renew(k, "a", 1, 1, now.Add(9*time.Second)) {
		t.Fatal("nobody took it: it can be renewed")
	}
	if table.Renew(k, "a", 1, 2, now) || table.Renew(k, "b", 1, 1, now) {
		t.Fatal("renewed by another")
	}
	table.Release(k, 2)
	if v, _, _ := table.Begin(now, k, "b", 1); v != OtherEdge {
		t.Fatal("released with another generation")
	}
	table.Release(k, 1)
	if v, _, _ := table.Begin(now, k, "b", 1); v != Free {
		t.Fatal("not released")
	}
}

// While the shard was another's, that owner may have granted the lease, lengthened it, or ended it.
func TestALeaseOfAnEarlierClaimCountsNoMore(t *testing.T) {
	table, now := New(), time.Now()
	table.Begin(now, k, "a", 1)
	table.Granted(k, "a", 1, 7, now.Add(time.Second))
	if table.Renew(k, "a", 2, 7, now.Add(time.Minute)) {
		t.Error("renewed from memory")
	}
	if v, _, last := table.Begin(now, k, "b", 2); v != Free || last != 0 {
		t.Errorf("%v, generation %d: what the database says counts", v, last)
	}
	if v, _, _ := table.Begin(now, k, "a", 3); v != Busy {
		t.Errorf("%v while it is being granted", v)
	}
}

func TestOldLeasesAreForgotten(t *testing.T) {
	table, now := New(), time.Now()
	for i := range 10 * sweepAt {
		key := Key{"u", string(rune(i))}
		table.Begin(now, key, "a", 1)
		table.Granted(key, "a", 1, 1, now.Add(time.Second))
		now = now.Add(time.Second)
	}
	if n := len(table.leases); n > 3*sweepAt {
		t.Errorf("%d leases are kept", n)
	}
}

// Whatever is asked, no two edges have a lease that runs at the same time.
func TestNeverTwoHolders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, now := New(), time.Now()
		type hold struct {
			edge       string
			generation uint64
			until      time.Time
		}
		var holder hold
		generation := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			edge := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "edge")
			until := now.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "lease")))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				v, _, _ := table.Begin(now, k, edge, 1)
				if v != Free {
					break
				}
				if holder.edge != edge && now.Before(holder.until) {
					t.Fatalf("%s may have it while %s does", edge, holder.edge)
				}
				generation++
				table.Granted(k, edge, 1, generation, until)
				holder = hold{edge, generation, until}
			case 1:
				g := rapid.Uint64Range(0, generation).Draw(t, "generation")
				if table.Renew(k, edge, 1, g, until) {
					if holder.edge != edge || holder.generation != g {
						t.Fatalf("%s renewed %d, the holder is %v", edge, g, holder)
					}
					holder.until = until
				}
			case 2:
				if holder.edge == edge {
					table.Release(k, holder.generation)
					holder = hold{}
				}
			case 3:
				now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "time")))
			}
		}
	})
}
