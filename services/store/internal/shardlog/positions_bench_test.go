package shardlog

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// BenchmarkOrderedPlan decides and applies a group commit of 100 messages of one ordered producer:
// to 100 topics again and again, and to another topic each time.
func BenchmarkOrderedPlan(b *testing.B) {
	for _, c := range []struct {
		name   string
		topics int
	}{{"same", 100}, {"distinct", 200_000}} {
		b.Run(c.name, func(b *testing.B) {
			s := owning()
			s.positions = newPositions(100_000, DefaultPositionWindow)
			names := make([]string, c.topics)
			shards := make([]int, c.topics)
			for i := range names {
				names[i] = fmt.Sprintf("user/%d/inbox", i)
				shards[i] = topic.Shard(names[i])
			}
			table := policy.NewTable(nil)
			numbers := make([]uint64, c.topics)
			var with scratch
			next := 0
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				entries := make([]*entry, 100)
				for i := range entries {
					numbers[next]++
					item := itemOf(names[next], 1, numbers[next], "")
					item.SettledSeq = numbers[next] - 1
					entries[i] = &entry{item: item, shard: shards[next]}
					next = (next + 1) % c.topics
				}
				now := noon + uint64(n)*1_000_000 // so that some 30,000 are used within the window
				s.forget(now, len(entries), forgetMost)
				p := newPlan(s, entries, backend.BatchID{}, now, table, with)
				s.apply(p, entries)
				with.recycle(p)
				if p.unplaced != (unplaced{}) {
					b.Fatalf("refused: %+v", p.unplaced)
				}
				with = p.scratch
				with.packed = with.packed[:0]
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*100), "ns/message")
		})
	}
}

// What DefaultPositions costs is what its comment says.
func TestPositionsTakeTheirBytes(t *testing.T) {
	const n = 200_000
	ps := newPositions(n, time.Minute)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("user/%d", i)
	}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for i := range names {
		ps.moved(position{key: producerKey{backend.ProducerID{byte(i >> 8)}, names[i]}, producerSeq: 1, at: noon})
	}
	each := (held() - before) / n
	t.Logf("%d bytes a position", each)
	if each > 180 {
		t.Errorf("a position takes %d bytes beside the topic's name, want 180 at most", each)
	}
	runtime.KeepAlive(ps)
	runtime.KeepAlive(names)
}
