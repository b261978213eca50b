package chaos

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// A router that starts while no store runs does not know which mesh it belongs to: it takes part in
// none, is not ready, says why, and refuses. Once a store is back it takes part without another
// restart.
func TestARouterRestartedWithoutStores(t *testing.T) {
	t.Parallel()
	m := procmesh.Start(t, procmesh.Options{Routers: 2})
	store, router := m.Stores[0], m.Routers[0]
	store.Kill()
	router.Kill()
	if err := router.Start(); err != nil {
		t.Fatal(err)
	}
	procmesh.Await(t, "the router says what it misses", func() bool {
		status, body := router.Status()
		return status == 503 && strings.Contains(body, "nats: missing: connected to NATS, but no store has answered yet which mesh this process belongs to")
	})
	conn, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = pushmeshv1.NewPublishServiceClient(conn).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/storeless"})
	if code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("published at a router that belongs to no mesh: %v", err)
	}
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	m.WaitReady(t)
	procmesh.Await(t, "it publishes", func() bool {
		_, err := pushmeshv1.NewPublishServiceClient(conn).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/storeless"})
		return err == nil
	})
}
