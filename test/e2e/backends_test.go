package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/code"
	identities "github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
)

// Backends with keys publish and consume what their roles say, in a mesh of all tiers: a
// subscription that no role allows is refused and the stream goes on, and a stream ends once its
// key is revoked.
func TestBackendsHaveRoles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "backends.yaml")
	key := func(name string, roles ...string) (text, id string) {
		t.Helper()
		k, text, err := identities.Create(path, name, roles, time.Now(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return text, k.ID
	}
	admin, _ := key("admin", "operator")
	consumer, consumerID := key("consumer", "consumer:room/mine/#")
	publisher, _ := key("publisher", "publisher:room/mine/#")
	stranger, _ := key("stranger", "publisher:room/other/#", "consumer:#")
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
	s, _ := backend.Open(t, as(consumer), &wirev1.Hello{ClientId: "c"}, false)
	for id, filter := range []string{"room/other/1", "room/#", "#", "$dead/#", "room/mine2"} {
		if sub, no := s.Subscribe(&wirev1.Subscribe{Id: uint32(id + 1), Filter: filter}); sub != nil || no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
			t.Errorf("%s is subscribed to: %v, %v", filter, sub, no)
		}
	}
	if sub, no := s.Subscribe(&wirev1.Subscribe{Id: 9, Filter: "room/mine/+"}); sub == nil {
		t.Fatalf("its own filter is refused: %v", no)
	}
	send := pushmeshv1.NewPublishServiceClient(as(publisher))
	if _, err := send.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/other/1"}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("another's topic: %v", err)
	}
	if _, err := send.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/mine/1", Payload: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if got := string(s.Message().GetPayload()); got != "hello" {
		t.Errorf("the message is %q", got)
	}
	// Who may not publish to a topic withdraws nothing of it either, and learns nothing of it.
	later, err := send.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/mine/1", DeliverAt: timestamppb.New(time.Now().Add(time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	withdraw := func(by string) wirev1.Code {
		_, err := pushmeshv1.NewPublishServiceClient(as(by)).CancelScheduled(t.Context(), &pushmeshv1.CancelScheduledRequest{MessageId: later.GetMessageId()})
		return code.Of(err)
	}
	if got := withdraw(stranger); got != wirev1.Code_CODE_NOT_FOUND {
		t.Errorf("another publisher withdraws: %v", got)
	}
	if got := withdraw(consumer); got != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("a consumer withdraws: %v", got)
	}
	if got := withdraw(publisher); got != wirev1.Code_CODE_OK {
		t.Errorf("the publisher itself: %v", got)
	}
	if _, err := pushmeshv1.NewMeshServiceClient(as(publisher)).Nodes(t.Context(), &pushmeshv1.MeshServiceNodesRequest{}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("a publisher lists nodes: %v", err)
	}
	if err := identities.Revoke(path, consumerID); err != nil {
		t.Fatal(err)
	}
	if err := s.End(); code.Of(err) != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("the stream of a key that was revoked ends with %v", err)
	}
	if _, err := send.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/mine/1"}); err != nil {
		t.Errorf("the other key: %v", err)
	}
}
