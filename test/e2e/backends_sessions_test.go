package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	identities "github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
)

// A consumer of other topics does nothing to a consumer's session, though it says its names.
func TestABackendsSessionIsItsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backends.yaml")
	key := func(name string, roles ...string) string {
		t.Helper()
		_, text, err := identities.Create(path, name, roles, time.Now(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	admin := key("admin", "operator")
	orders, mails := key("orders", "consumer:room/orders/#"), key("mails", "consumer:room/mails/#")
	m := harness.Start(t, harness.Options{Key: admin, Change: func(s *inprocess.Settings) {
		s.Routers[0].Open, s.Routers[0].Backends = false, path
	}})
	as := func(key string) *grpc.ClientConn {
		t.Helper()
		conn, err := grpc.NewClient(m.RouterAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), harness.Showing(key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	hello := &wirev1.Hello{ClientId: "worker", Session: "all"}
	a, _ := backend.Open(t, as(orders), hello, false)
	if sub, no := a.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/orders/1", Ack: true, Start: wirev1.Start_START_SESSION}); sub == nil {
		t.Fatal(no)
	}
	b, w := backend.Open(t, as(mails), &wirev1.Hello{ClientId: "worker", Session: "all", SessionTtlS: 1}, false)
	if w.GetResumed() {
		t.Error("a consumer of other topics has resumed the session")
	}
	if err := b.HalfClose(); err != nil {
		t.Error(err)
	}
	_, err := pushmeshv1.NewPublishServiceClient(as(admin)).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/orders/1", Payload: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := a.Next(); err != nil {
		t.Errorf("the consumer's stream ended with %v", err)
	} else if got := string(ev.GetMessage().GetPayload()); got != "hello" {
		t.Errorf("it got %v", ev)
	}
	a.Close()
	if _, w := backend.Open(t, as(orders), hello, false); !w.GetResumed() {
		t.Error("it does not find its own session again")
	}
}
