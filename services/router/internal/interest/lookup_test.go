package interest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func TestLookupDoesNotAllocate(t *testing.T) {
	s := begin(t)
	for i := range 12 {
		s.announce(fmt.Sprint(i), 1, 1, "x", "x/#", "+", "y/+")
	}
	for _, topic := range []string{"x", "y/1", "z/1"} {
		dst := make([]*Peer, 0, 64)
		if n := testing.AllocsPerRun(100, func() { dst = s.table.Lookup(dst[:0], topic) }); n > 0 {
			t.Errorf("%s: %v allocations", topic, n)
		}
	}
}

// Whoever wants a topic all the time is found by every lookup, and found once, while their tables
// are replaced by snapshots, other edges come and go, and the table grows and is swept.
func TestLookupsBesideChangesMissNobody(t *testing.T) {
	var table Table
	keep := []string{"keep/exact", "keep/+"}
	for _, id := range []string{"a", "b"} {
		table.Announce(zero, announcement(id, keep))
	}
	table.Take(nil)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for reader := range 2 {
		wg.Go(func() {
			topic := []string{"keep/exact", "keep/any"}[reader]
			var dst []*Peer
			for {
				select {
				case <-done:
					return
				default:
				}
				dst = table.Lookup(dst[:0], topic)
				if len(dst) != 2 || dst[0] == dst[1] {
					t.Errorf("%s goes to %d", topic, len(dst))
					return
				}
			}
		})
	}
	for round := range uint64(200) {
		for _, id := range []string{"a", "b"} {
			filters := append([]string{fmt.Sprint("other/", round), fmt.Sprintf("other/%d/+", round)}, keep...)
			d := digestOf(id, round+1, nil)
			d.Hash-- // differs, so that a snapshot is wanted
			d.Count = 1
			table.Digest(zero, d)
			table.Snapshot(zero, &meshv1.EdgeSnapshot{EdgeId: id, EdgeIncarnation: 1, Version: round + 1, Parts: 1, Filters: filters})
			table.Announce(zero, &meshv1.EdgeAnnounce{EdgeId: id, EdgeIncarnation: 1, Version: round + 2, Add: []string{fmt.Sprint("more/", round)}})
		}
		other := fmt.Sprint("c", round)
		table.Announce(zero, announcement(other, []string{"x", "y/+", fmt.Sprint(round)}))
		table.Digest(zero, &meshv1.EdgeDigest{EdgeId: other, EdgeIncarnation: 1, Leaving: true})
		for range 50 {
			table.Sweep()
		}
		table.Take(nil)
	}
	close(done)
	wg.Wait()
}
