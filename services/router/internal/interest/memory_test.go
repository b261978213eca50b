package interest

import (
	"fmt"
	"runtime"
	"testing"
)

// Every router holds the interest of the whole mesh: what an entry costs bounds the mesh.
func TestBytesPerEntry(t *testing.T) {
	const topics, edges, budget = 200_000, 2, 100
	names := func(edge int) []string {
		list := make([]string, topics)
		for i := range list {
			list[i] = fmt.Sprintf("user/%d/inbox", edge*topics+i)
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
