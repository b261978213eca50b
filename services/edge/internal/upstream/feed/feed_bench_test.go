package feed

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// What a delivery costs between NATS and the loops' mailboxes, in batches of 64.
func BenchmarkDeliver(b *testing.B) {
	for _, c := range []struct{ topics, loops int }{{1, 1}, {1000, 1}, {1000, 8}} {
		b.Run(fmt.Sprintf("topics=%d/loops=%d", c.topics, c.loops), func(b *testing.B) {
			be := newBench(b, c.loops, Config{})
			names := make([]string, c.topics)
			for i := range names {
				names[i] = fmt.Sprintf("room/%d/chat", i)
				for loop := range c.loops {
					be.join(loop, names[i], 1, 0)
				}
			}
			frame := make([]byte, 256)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				be.Deliver(be.now, &exchange.Message{Topic: names[n%c.topics], Epoch: 1, Seq: uint64(n/c.topics) + 1, Frame: frame})
				if n++; n%64 == 0 {
					be.Advance(be.now)
					be.Take()
				}
			}
			if got := be.Stats().Duplicates.Load() + be.Stats().Holes.Load(); got != 0 {
				b.Fatalf("%d were no plain deliveries", got)
			}
		})
	}
}
