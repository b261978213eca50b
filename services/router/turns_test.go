package router

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// from connects to a router from an address of this host.
func from(t *testing.T, addr string, m *mesh) pushmeshv1.PublishServiceClient {
	t.Helper()
	return pushmeshv1.NewPublishServiceClient(m.from(t, addr))
}

// A router that is late, and is called from two addresses, has them take turns; calls of both go on
// being answered. With TLS it is the same.
func TestAddressesOfALateRouterTakeTurns(t *testing.T) {
	for name, start := range ways {
		t.Run(name, func(t *testing.T) { takeTurns(t, start(t, nil)) })
	}
}

func takeTurns(t *testing.T, m *mesh) {
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	for range 4 {
		pub := from(t, "127.0.0.2", m)
		for range 250 {
			flood.Go(func() {
				for ctx.Err() == nil {
					_, _ = pub.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "live/flood"})
				}
			})
		}
	}
	pub := from(t, "127.0.0.1", m)
	end := time.Now().Add(patience)
	for calls := 0; calls < 20 || m.router.front.turns.Waited() == 0; calls++ {
		if _, err := pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/honest"}); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d turns were waited for in %d calls", m.router.front.turns.Waited(), calls)
		}
	}
}
