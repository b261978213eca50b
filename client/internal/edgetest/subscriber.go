package edgetest

import (
	"context"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Plain is the Welcome of an edge without features, whose publish window is 2.
func Plain() *wirev1.Welcome {
	return &wirev1.Welcome{ConnectionId: 1, Edge: "edge-a", HeartbeatMs: 30000, MaxFrame: 1 << 20, Version: 1, ClientId: "c1", PublishWindow: 2}
}

// NewSubscriber is one of this test, which comes back soon, waits for the edge, and is closed at
// the end.
func NewSubscriber(t *testing.T, cfg pushmesh.SubscriberConfig) *pushmesh.Subscriber {
	t.Helper()
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff = time.Millisecond
	}
	cfg.DialTimeout = Patience // the edge answers once, to the connection that it was asked on
	cfg.Agent = t.Name()
	s, err := pushmesh.NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}
