package heads

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
)

func levelOf(t *rapid.T, of ...string) string { return rapid.SampledFrom(of).Draw(t, "level") }

func nameOf(t *rapid.T) string {
	levels := []string{levelOf(t, "a", "b", "$x")}
	for range rapid.IntRange(0, 3).Draw(t, "more levels") {
		levels = append(levels, levelOf(t, "a", "b", "c", "d", "e", "f", "ä"))
	}
	return strings.Join(levels, "/")
}

func filterOf(t *rapid.T) string {
	var levels []string
	for range rapid.IntRange(1, 4).Draw(t, "levels") {
		levels = append(levels, levelOf(t, "a", "b", "c", "$x", "+", "+"))
	}
	if rapid.Bool().Draw(t, "rest") {
		levels = append(levels, "#")
	}
	return strings.Join(levels, "/")
}

// A table finds what was added, by name and by filters, however few topics a step looks at.
func TestATableFindsWhatFiltersMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		want := map[string]uint64{}
		for _, name := range rapid.SliceOfN(rapid.Custom(nameOf), 0, 200).Draw(t, "appended") {
			head := rapid.Uint64Range(1000, 1010).Draw(t, "head")
			table.Append(name, 1).Head = head
			want[name] = max(want[name], head)
			if rapid.IntRange(0, 50).Draw(t, "then") == 0 {
				table.Index()
			}
		}
		table.Index()
		for i := range rapid.IntRange(0, 200).Draw(t, "topics") {
			name := nameOf(t)
			have := table.Get(name)
			if _, ok := want[name]; ok != (have != nil) {
				t.Fatalf("%s is there: %v", name, have != nil)
			}
			if have == nil {
				have = table.Add(name, 1)
			}
			have.Head = uint64(i)
			want[name] = uint64(i)
		}
		got := map[string]uint64{}
		table.Each(func(name string, x *Topic) { got[strings.Clone(name)] = x.Head })
		if !maps.Equal(got, want) || table.Len() != len(want) {
			t.Fatalf("%d topics %v, want %v", table.Len(), got, want)
		}
		filters := rapid.SliceOfN(rapid.Custom(filterOf), 1, 6).Draw(t, "filters")
		var matches []string
		for name := range want {
			if slices.ContainsFunc(filters, func(f string) bool { return topic.Match(f, name) }) {
				matches = append(matches, name)
			}
		}
		slices.Sort(matches)
		found := map[string]int{}
		var at Cursor
		q, most := NewQuery(filters), rapid.IntRange(1, 50).Draw(t, "a step")
		for more := true; more; {
			looked := 0
			more = table.Match(q, &at, most, func(name string, _ *Topic) bool {
				found[name]++
				looked++
				return true
			})
			if looked > most {
				t.Fatalf("a step of %d found %d", most, looked)
			}
		}
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, matches) {
			t.Fatalf("%q found %q, want %q", filters, got, matches)
		}
		for name, n := range found {
			if n > len(filters) || len(filters) == 1 && n > 1 {
				t.Fatalf("%s was found %d times by %q", name, n, filters)
			}
		}
		if most := rapid.IntRange(1, 3).Draw(t, "wanted"); len(matches) > most {
			var at Cursor
			n := 0
			if table.Match(q, &at, 1000, func(string, *Topic) bool { n++; return n < most }) || n != most {
				t.Fatalf("asked to stop at %d, it went on to %d, or says that there is more", most, n)
			}
		}
	})
}

// Words that share a hash are told apart by the names.
func TestWordsThatShareAHash(t *testing.T) {
	var table Table
	for _, name := range []string{"a/x", "a/y", "b/x"} {
		table.Add(name, 1)
	}
	for _, h := range []uint32{wordHash(0, "c"), wordHash(1, "z")} {
		// as if they were a hash of these
		for n := range uint32(3) {
			table.levels.put(h, n+1)
		}
	}
	for _, f := range []string{"c/+", "c/#", "+/z", "c/z"} {
		table.Match(NewQuery([]string{f}), &Cursor{}, 100, func(name string, _ *Topic) bool {
			t.Errorf("%s matches %s", f, name)
			return true
		})
	}
}

// What changed is told once, as it is then.
func TestChangedIsToldOnce(t *testing.T) {
	var table Table
	for i := range 100 {
		name := fmt.Sprint("t/", i)
		table.Add(name, 1)
		if i%10 == 0 {
			table.Changed(table.Get(name), name)
			table.Changed(table.Get(name), name)
		}
	}
	table.Get("t/50").Head = 7
	got := map[string]uint64{}
	take := func() {
		table.TakeChanged(func(name string, x *Topic) {
			if _, twice := got[name]; twice {
				t.Errorf("%s twice", name)
			}
			got[strings.Clone(name)] = x.Head
		})
	}
	take()
	if len(got) != 10 || got["t/50"] != 7 {
		t.Errorf("%v", got)
	}
	take()
	clear(got)
	table.Changed(table.Get("t/50"), "t/50")
	if take(); len(got) != 1 {
		t.Errorf("changed again: %v", got)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a/b c/d a/b/c", "a/+")
	f.Add("$x/y a/y", "+/y")
	f.Add("a a/b", "a/#")
	f.Fuzz(func(t *testing.T, names, filter string) {
		if topic.CheckFilter(filter) != nil {
			return
		}
		var table Table
		want := map[string]bool{}
		for name := range strings.FieldsSeq(names) {
			if topic.Check(name) != nil || table.Get(name) != nil {
				continue
			}
			table.Add(name, 1)
			if topic.Match(filter, name) {
				want[name] = true
			}
		}
		got := map[string]bool{}
		var at Cursor
		for q, more := NewQuery([]string{filter}), true; more; {
			more = table.Match(q, &at, 2, func(name string, _ *Topic) bool {
				if got[name] {
					t.Fatalf("%q twice", name)
				}
				got[name] = true
				return true
			})
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%q of %q: %v, want %v", filter, names, got, want)
		}
	})
}

// bytesOf is what f leaves on the heap.
func bytesOf(f func() any) (bytes int64, made any) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	made = f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc), made
}

// A topic takes at most 100 bytes, in shards of whatever size.
func TestATopicTakesLittle(t *testing.T) {
	for _, each := range []int{1_000, 3_000, 10_000, 13_000} {
		const shards = 20
		n, tables := bytesOf(func() any {
			tables := make([]Table, shards)
			for i := range shards * each {
				tables[i%shards].Append(fmt.Sprintf("room/%d/chat", 1_000_000+i), 1)
			}
			for i := range tables {
				tables[i].Index()
			}
			return tables
		})
		runtime.KeepAlive(tables)
		bytes := float64(n) / float64(shards*each)
		t.Logf("%d in a shard: %.1f bytes a topic", each, bytes)
		if bytes > 100 {
			t.Errorf("%d in a shard: %.1f bytes a topic", each, bytes)
		}
	}
}

func tableOf(n int) *Table {
	var table Table
	for i := range n {
		name := fmt.Sprintf("room/%d/chat", i)
		if i%1000 == 7 {
			name = fmt.Sprintf("room/%d/rare", i)
		}
		table.Add(name, 1)
	}
	return &table
}

func BenchmarkTable(b *testing.B) {
	const n = 10_000
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("room/%d/chat", i)
	}
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		var table Table
		for i := range b.N {
			if i%n == 0 {
				table = Table{}
			}
			table.Add(all[i%n], 1)
		}
	})
	table := tableOf(n)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var tables [1024]Table
		for i := range b.N {
			tables[i%1024].Append(all[i/1024%n], 1)
			if (i+1)%(1024*n) == 0 || i == b.N-1 {
				for at := range tables {
					tables[at].Index()
				}
				tables = [1024]Table{}
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		for i := range b.N {
			table.Get(all[i%n])
		}
	})
	known := map[string]*Topic{}
	for _, name := range all {
		known[name] = table.Get(name)
	}
	b.Run("get of a map", func(b *testing.B) {
		var x *Topic
		for i := range b.N {
			x = known[all[i%n]]
		}
		runtime.KeepAlive(x)
	})
	for _, f := range []string{"room/+/rare", "room/77/#", "none/#", "+/77/+", "#"} {
		b.Run("match "+strings.ReplaceAll(f, "/", "|"), func(b *testing.B) {
			b.ReportAllocs()
			q := NewQuery([]string{f})
			for range b.N {
				table.Match(q, &Cursor{}, n, func(string, *Topic) bool { return true })
			}
		})
	}
}
