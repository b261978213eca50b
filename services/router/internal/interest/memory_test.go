package interest

import (
	"fmt"
	"runtime"
	"testing"
)

// Every router holds the interest of the whole mesh: what an entry costs bounds the mesh.
func TestBytesPerEntry(t *testing.T) {
	const topics, edges, budget = 200_000, 2, 150
	names := func(edge int) []string {
		list := make([]string, topics)
		for i := range list {
			list[i] = fmt.Sprintf("user/%d-%d/inbox", edge, i)
		}
		return list
	}
	before := heap()
	table := &Table{}
	for edge := range edges {
		table.Announce(zero, announcement(fmt.Sprint(edge), names(edge)))
	}
	table.Take(nil)
	per := float64(heap()-before) / (topics * edges)
	t.Logf("%.0f B for each (topic, edge)", per)
	if per > budget {
		t.Errorf("%.0f B for each (topic, edge), at most %d", per, budget)
	}
	runtime.KeepAlive(table)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkLookup(b *testing.B) {
	table := &Table{}
	for edge := range 4 {
		var list []string
		for i := range 100_000 {
			list = append(list, fmt.Sprintf("user/%d/inbox", i))
		}
		table.Announce(zero, announcement(fmt.Sprint(edge), append(list, "room/+/chat")))
	}
	var dst []*Peer
	b.ReportAllocs()
	for b.Loop() {
		dst = table.Lookup(dst[:0], "user/77777/inbox")
	}
	if len(dst) != 4 {
		b.Fatal(dst)
	}
}
