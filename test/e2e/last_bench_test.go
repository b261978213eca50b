package e2e

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// BenchmarkLastMessages is the time from Subscribe, of a topic or of a filter with wildcards that
// matches ten, until the last of their last messages is there. Run for less than 500 rounds, none
// of them was asked for before, so that each comes from the database.
func BenchmarkLastMessages(b *testing.B) {
	const groups = 500
	for name, db := range map[string]func() string{"sqlite": func() string { return "" }, "postgres": func() string { return pgtest.URL(b) }} {
		m := harness.Start(b, harness.Options{DB: db()})
		api := pushmeshv1.NewNamespaceServiceClient(m.Router(b))
		for known := false; !known; { // by every process: a machine at work takes its time
			answer, err := api.Put(b.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{Prefix: "state", Policy: keepLast}})
			if err != nil {
				b.Fatal(err)
			}
			known = len(answer.GetLagging()) == 0
		}
		for i := range 10 * groups {
			m.Publish(b, fmt.Sprintf("state/%d/%d", i/10, i%10), "x")
		}
		for kind, want := range map[string]int{"state/%d/7": 1, "state/%d/+": 10} {
			b.Run(fmt.Sprintf("%s/topics=%d", name, want), func(b *testing.B) {
				c, _ := wireclient.Connect(b, m.EdgeAddr(), &wirev1.Hello{ClientId: "wall", HeartbeatMs: 60_000})
				id := uint32(0)
				for b.Loop() {
					id++
					c.Subscribe(&wirev1.Subscribe{Id: id, Filter: fmt.Sprintf(kind, id%groups)})
					for range want {
						c.Message()
					}
					b.StopTimer()
					c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
					if ft, _, err := c.Next(wireclient.Patience); err != nil || ft != wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED {
						b.Fatal(ft, err)
					}
					b.StartTimer()
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/op")
			})
		}
	}
}
