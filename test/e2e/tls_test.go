package e2e

import (
	"context"
	"crypto/tls"
	"strconv"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
)

// A subscriber with TLS gets what is published, beside a backend, whose router comes to the edge
// without.
func TestASubscriberWithTLS(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Write(t.TempDir(), "edge", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	m := harness.Start(t, harness.Options{TLSCert: cert, TLSKey: key})
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true, AckTimeout: durationpb.New(patient)})
	got := make(chan *pushmesh.Delivery, 100)
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, TLS: &tls.Config{RootCAs: ca.Pool()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close(sub) }()
	if _, err := sub.Subscribe(t.Context(), "jobs/a", func(_ context.Context, d *pushmesh.Delivery) error {
		got <- d
		return nil
	}, pushmesh.WithAck()); err != nil {
		t.Fatal(err)
	}
	s, _ := backend.Open(t, m.Router(t), &wirev1.Hello{ClientId: "worker"}, false)
	if subscribed, no := s.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "jobs/a", Ack: true}); subscribed == nil {
		t.Fatalf("refused: %v", no)
	}
	m.PublishBatch(t, "jobs/a", 10)
	for i := range 10 {
		if d := <-got; string(d.Payload) != strconv.Itoa(i+1) {
			t.Fatalf("message %d: %q", i+1, d.Payload)
		}
		if msg := s.Message(); msg.GetSeq() != uint64(i+1) {
			t.Fatalf("the backend got %d, want %d", msg.GetSeq(), i+1)
		}
	}
}
