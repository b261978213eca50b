package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// BenchmarkRankedFanOut ranks 100 messages for many subscribers, the best 10 for each; what the
// ranking itself takes is not counted. longest-slice is what other connections of the loop wait
// for.
func BenchmarkRankedFanOut(b *testing.B) {
	for _, kind := range []string{"flash/1", "top/1"} {
		for _, members := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", kind, members), func(b *testing.B) {
				w := rankedWorld(b, Limits{}, 0)
				clients := make([]*client, members)
				for i := range clients {
					clients[i] = w.connect(&wirev1.Hello{})
					clients[i].subscribe(&wirev1.Subscribe{Id: 1, Filter: kind, RankTopK: 10})
					clients[i].got = nil
				}
				texts := make([]string, 100)
				for i := range texts {
					texts[i] = fmt.Sprint(i)
				}
				longest, all := time.Duration(0), time.Duration(0)
				settle := func() {
					for {
						mail := w.mail
						w.mail = nil
						began := time.Now()
						for _, e := range mail {
							w.h.Event(e)
						}
						more := w.h.Work(256)
						took := time.Since(began)
						longest, all = max(longest, took), all+took
						if !more && len(w.mail) == 0 {
							return
						}
					}
				}
				b.ResetTimer()
				for range b.N {
					if kind == "top/1" {
						w.mesh.Send(kind, texts...)
					} else {
						w.mesh.Live(upstreamtest.Run(kind, 0, 0, texts...)...)
					}
					settle()
					w.mesh.EndWindows()
					settle()
					b.StopTimer()
					answer := exchange.RankedMember{}
					for i := range 10 {
						answer.Best = append(answer.Best, exchange.RankedPlace{Place: uint32(99 - 7*i), Score: float64(99 - 7*i)})
					}
					for _, r := range w.mesh.Rankings() {
						out := exchange.Ranked{Serial: r.Serial}
						for range r.Members {
							out.Members = append(out.Members, answer)
						}
						w.mail = append(w.mail, out)
					}
					b.StartTimer()
					settle()
					b.StopTimer()
					for _, c := range clients {
						bufs, n := w.h.Gather(c.slot, nil, 0), 0
						for _, x := range bufs {
							n += len(x)
						}
						w.h.Wrote(c.slot, n)
					}
					settle()
					b.StartTimer()
				}
				b.ReportMetric(float64(longest.Microseconds()), "longest-slice-µs")
				b.ReportMetric(float64(all.Nanoseconds())/float64(b.N)/float64(members)/10, "ns/delivery")
			})
		}
	}
}
