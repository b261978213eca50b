package mailbox

import (
	"fmt"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// BenchmarkThroughput is items per second through one box, from so many goroutines to the one that
// takes.
func BenchmarkThroughput(b *testing.B) {
	for _, senders := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("%d senders", senders), func(b *testing.B) {
			woken := make(chan struct{}, 1)
			box := New(Bounds{Batches: 1 << 20, Bytes: 1 << 30, Others: 1 << 20}, func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
			var event exchange.Event = exchange.PoliciesChanged{}
			b.ReportAllocs()
			var wg sync.WaitGroup
			for i := range senders {
				n := b.N / senders
				if i == 0 {
					n += b.N % senders
				}
				wg.Go(func() {
					for range n {
						for !box.Put(event) {
						}
					}
				})
			}
			taken := 0
			var got []exchange.Event
			for taken < b.N {
				if box.Empty() {
					<-woken
				}
				clear(got)
				got = box.Take(got[:0])
				taken += len(got)
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "M-items/s")
		})
	}
}
