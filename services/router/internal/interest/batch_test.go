package interest

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Filters that come together end like those that come one by one.
func TestABatchIsAsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var alone, together Table
		a, b := alone.newView(1), together.newView(1)
		filters := rapid.SliceOf(rapid.SampledFrom([]string{"x", "x/1", "y", "+/1", "x/#", "#", "", "a#", "$events/#", "$events/connect"}))
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			batch := filters.Draw(t, "filters")
			for n := range rapid.IntRange(0, 300).Draw(t, "numbered") {
				batch = append(batch, strconv.Itoa(n))
			}
			together.addAll(b, batch)
			for _, f := range batch {
				alone.add(a, f)
			}
			if b.count != a.count || b.hash != a.hash || b.events != a.events {
				t.Fatalf("%d filters, hash %d, events %v; want %d, %d, %v", b.count, b.hash, b.events, a.count, a.hash, a.events)
			}
		}
		peer := &Peer{Edge: Edge{ID: "e", Incarnation: 1}}
		alone.live.replace(0, a.slot, peer)
		together.live.replace(0, b.slot, peer)
		for _, topic := range []string{"x", "x/1", "y", "z/1", "7"} {
			if got, want := together.Lookup(nil, topic), alone.Lookup(nil, topic); !slices.Equal(got, want) {
				t.Fatalf("%s goes to %v, want %v", topic, got, want)
			}
		}
	})
}

// Where the number of topics is known before they come, tables grow in few steps to what is needed,
// and not beyond.
func TestTablesGrowToWhatIsExpected(t *testing.T) {
	const n = parts * 200
	s := begin(t)
	s.digest("a", 1, 1, slices.Repeat([]string{"x"}, n)...)
	filters := make([]string, n)
	for i := range filters {
		filters[i] = "user/" + strconv.Itoa(i)
	}
	most := s.table.topics.expected*4/3 + 1 // a part's entries in the end
	made := 0
	var sizes [parts]int
	for part := range uint32(100) {
		s.part("a", 1, 1, part, 100, filters[int(part)*n/100:int(part+1)*n/100]...)
		for i := range sizes {
			if size := len(s.table.topics.part[i].entries); size != sizes[i] {
				made += size
				sizes[i] = size
			}
		}
	}
	if got := s.table.Stats().Entries; got != n {
		t.Fatalf("%d topics, want %d", got, n)
	}
	if made > parts*most*3/2 {
		t.Errorf("%d entries were made on the way to %d", made, parts*most)
	}
	s.table.drop(s.table.edges["a"], false)
	if s.table.expected != 0 || s.table.topics.expected != 0 {
		t.Errorf("%d topics are expected of nobody", s.table.expected)
	}
}
