package router

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// from connects to a router from an address of this host.
func from(t *testing.T, addr string, m *mesh) pushmeshv1.PublishServiceClient {
	t.Helper()
	by := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	conn, err := grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return by.DialContext(ctx, "tcp", to) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pushmeshv1.NewPublishServiceClient(conn)
}

// A router that is late, and is called from two addresses, has them take turns; calls of both go on
// being answered.
func TestAddressesOfALateRouterTakeTurns(t *testing.T) {
	m := startMesh(t, nil)
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
