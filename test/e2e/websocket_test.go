package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
)

// The SDK does over WebSocket what it does without: it receives, ACKs, publishes, and goes on where
// it was once its connection is gone.
func TestTheSDKByWebSocket(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 1})
	putNamespace(t, m, "room", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	got := make(chan string, 100)
	subscribe := func() *pushmesh.Subscriber {
		s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, ClientID: "ann", Session: "s", WebSocket: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Subscribe(t.Context(), "room/1", func(_ context.Context, d *pushmesh.Delivery) error {
			got <- string(d.Payload)
			return nil
		}, pushmesh.FromSession(), pushmesh.WithAck()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := subscribe()
	for i := range 20 {
		if _, err := s.Publish(t.Context(), pushmesh.ClientMessage{Topic: "room/1", Payload: fmt.Appendf(nil, "%d", i)}); err != nil {
			t.Fatal(err)
		}
		if p := <-got; p != fmt.Sprint(i) {
			t.Fatalf("got %q as message %d", p, i)
		}
	}
	if err := closing.Close(s); err != nil {
		t.Fatal(err)
	}
	m.Publish(t, "room/1", "while it was away")
	s = subscribe()
	if p := <-got; p != "while it was away" {
		t.Errorf("got %q", p)
	}
	if err := closing.Close(s); err != nil {
		t.Error(err)
	}
}
