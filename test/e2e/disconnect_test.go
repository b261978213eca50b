package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// A user's connections end within 100 ms, on whichever edges they are, and see why; nobody else's
// do. The best of some rounds counts.
func TestDisconnectAnywhereWithin100ms(t *testing.T) {
	m := harness.Start(t, harness.Options{Edges: 3})
	api := pushmeshv1.NewSessionServiceClient(m.Router(t))
	var others []*wireclient.Client
	for i := range 300 {
		c, _ := wireclient.Connect(t, m.EdgeAddrs[i%3], &wirev1.Hello{ClientId: "other", HeartbeatMs: 600_000})
		others = append(others, c)
	}
	best := time.Hour
	for rounds := 0; best > 100*time.Millisecond; rounds++ {
		if rounds == 20 {
			t.Fatalf("at best after %v", best)
		}
		var gone sync.WaitGroup
		for i := range 6 {
			c, _ := wireclient.Connect(t, m.EdgeAddrs[i%3], &wirev1.Hello{ClientId: "ann", HeartbeatMs: 600_000})
			gone.Go(func() {
				if e := c.Error(); e.GetCode() != wirev1.Code_CODE_FORBIDDEN || e.GetMessage() != "banned" {
					t.Errorf("told %v", e)
				}
				c.Closed()
			})
		}
		began := time.Now()
		resp, asked, err := again(func() (*pushmeshv1.DisconnectResponse, error) {
			return api.Disconnect(t.Context(), &pushmeshv1.DisconnectRequest{User: "client:ann", Code: wirev1.Code_CODE_FORBIDDEN, Reason: "banned"})
		})
		if n := resp.GetDisconnected(); err != nil || n > 6 || asked == 1 && n != 6 {
			// what is answered too late is done, and not counted
			t.Fatalf("%v, %v", resp, err)
		}
		gone.Wait()
		best = min(best, time.Since(began))
	}
	t.Logf("after %v", best)
	for _, c := range others {
		c.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	}
	for _, c := range others {
		if ft, _, err := c.Next(wireclient.Patience); err != nil || ft != wirev1.FrameType_FRAME_TYPE_PONG {
			t.Fatalf("another one: %v %v", ft, err)
		}
	}
}
