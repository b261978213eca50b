package heads

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// known is what a table should tell of a topic.
type known struct{ epoch, head, oldest uint64 }

// Whatever topics begin, are appended, begin anew, are forgotten and compacted away in whatever
// order, also while a compaction is under way: the table tells of each what was last said of it.
func TestTopicsComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, want, changed := &Table{}, map[string]known{}, map[string]bool{}
		var making *Compaction
		more := false
		epoch := uint64(1)
		name := func() string { return fmt.Sprint("t/", rapid.IntRange(0, 150).Draw(t, "topic")) }
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 8).Draw(t, "act") {
			case 0, 1:
				for range rapid.IntRange(1, 40).Draw(t, "begin") {
					n := name()
					if table.Get(n) == nil {
						x := table.Add(n, epoch)
						x.Head, x.Oldest = 1, 1
						want[n] = known{epoch, 1, 1}
					}
				}
			case 2:
				n := name()
				if x := table.Get(n); x != nil {
					x.Head++
					table.Changed(x, n)
					have := want[n]
					want[n], changed[n] = known{have.epoch, have.head + 1, have.oldest}, true
				}
			case 3:
				epoch++
			case 4, 5:
				for range rapid.IntRange(1, 60).Draw(t, "forget") {
					n := name()
					if x := table.Get(n); x != nil {
						table.Forget(x)
						delete(want, n)
						delete(changed, n)
					}
				}
			case 6:
				switch {
				case making == nil:
					making, more = table.Compact(), true
				case more:
					more = making.Some()
				default:
					making.Index()
					table, making = making.End(), nil
				}
			case 7:
				table.TakeChanged(func(n string, x *Topic) {
					if have := (known{table.Epoch(x), x.Head, x.Oldest}); have != want[n] || !changed[n] {
						t.Fatalf("%s has changed: %v, and is %+v, want %+v", n, changed[n], have, want[n])
					}
					delete(changed, n)
				})
				if len(changed) > 0 {
					t.Fatalf("%v have changed, too", changed)
				}
			case 8:
				n := name()
				if x := table.Get(n); x != nil {
					table.Restart(x, epoch)
					want[n] = known{epoch: epoch}
				}
			}
		}
		got := map[string]known{}
		table.Each(func(name string, x *Topic) { got[strings.Clone(name)] = known{table.Epoch(x), x.Head, x.Oldest} })
		if !maps.Equal(got, want) || table.Len() != len(want) {
			t.Fatalf("%d topics: %v, want %v", table.Len(), got, want)
		}
		found := map[string]bool{}
		for _, f := range [][]string{{"t/+"}, {"#"}, {"t/#", "+/+"}} {
			clear(found)
			table.Match(NewQuery(f), &Cursor{}, 1000, func(name string, _ *Topic) bool { found[name] = true; return true })
			if !slices.Equal(slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want))) {
				t.Fatalf("%v matches %v, want %v", f, found, want)
			}
		}
		for n := range 151 {
			name := fmt.Sprint("t/", n)
			if _, there := want[name]; there != (table.Get(name) != nil) {
				t.Fatalf("%s is there: %v", name, !there)
			}
		}
	})
}

// Of what is appended several times the latest epoch holds, and of that the greatest head.
func TestAppendedUnderSeveralEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		want := map[string]known{}
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			name := fmt.Sprint("t/", rapid.IntRange(0, 9).Draw(t, "topic"))
			x := known{rapid.Uint64Range(1, 4).Draw(t, "epoch"), rapid.Uint64Range(0, 9).Draw(t, "head"), rapid.Uint64Range(1, 9).Draw(t, "oldest")}
			topic := table.Append(name, x.epoch)
			topic.Head, topic.Oldest = x.head, x.oldest
			have := want[name]
			if have.epoch == x.epoch {
				x.head, x.oldest = max(x.head, have.head), max(x.oldest, have.oldest)
			}
			if x.epoch >= have.epoch {
				want[name] = x
			}
			if rapid.IntRange(0, 9).Draw(t, "then") == 0 {
				table.Index()
			}
		}
		table.Index()
		for name, x := range want {
			if topic := table.Get(name); topic == nil || (known{table.Epoch(topic), topic.Head, topic.Oldest}) != x {
				t.Fatalf("%s is %+v, want %+v", name, topic, x)
			}
		}
	})
}

// Topics that are forgotten give their memory back.
func TestForgottenTopicsTakeNothing(t *testing.T) {
	const n = 200_000
	var before, full, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := &Table{}
	for i := range n {
		table.Add(fmt.Sprintf("room/%d/chat", i), 1).Head = 1
	}
	runtime.GC()
	runtime.ReadMemStats(&full)
	for i := range n - 100 {
		table.Forget(table.Get(fmt.Sprintf("room/%d/chat", i)))
	}
	if !table.Sparse() || table.Len() != 100 || table.Taken() != n {
		t.Errorf("%d topics with %d numbers", table.Len(), table.Taken())
	}
	table = compacted(table)
	runtime.GC()
	runtime.ReadMemStats(&after)
	with, without := full.HeapAlloc-before.HeapAlloc, int64(after.HeapAlloc)-int64(before.HeapAlloc)
	t.Logf("%d topics: %d bytes; %d: %d", n, with, table.Len(), without)
	if without > int64(with)/50 {
		t.Errorf("of %d bytes %d are left for %d topics", with, without, table.Len())
	}
	if table.Len() != 100 || table.Taken() != 100 || table.Sparse() {
		t.Errorf("%d topics with %d numbers", table.Len(), table.Taken())
	}
	runtime.KeepAlive(table)
}

func compacted(table *Table) *Table {
	c := table.Compact()
	for c.Some() {
	}
	c.Index()
	return c.End()
}

// How long the lock is held for a compaction of so many topics: for End, and for each Some.
func BenchmarkCompact(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		table := tableOf(n)
		i := 0
		table.Each(func(_ string, x *Topic) {
			if i++; i%2 == 0 {
				table.Forget(x)
			}
		})
		var making *Compaction
		b.Run(fmt.Sprintf("names of %d", n), func(b *testing.B) {
			for range b.N {
				making = table.Compact()
				for making.Some() {
				}
				making.Index()
			}
		})
		b.Run(fmt.Sprintf("the end of %d", n), func(b *testing.B) {
			for range b.N {
				making.to.gone = 0
				making.End()
			}
		})
	}
}
