package claim

import (
	"context"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/edgetest"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const patience = edgetest.Patience

type fakeEdge struct{ *edgetest.Edge }

type edgeConn struct{ *edgetest.Conn }

func newFakeEdge(t *testing.T) *fakeEdge {
	t.Helper()
	return &fakeEdge{edgetest.New(t)}
}

func (e *fakeEdge) welcome() *edgeConn {
	return e.welcomeWith(&wirev1.Welcome{ConnectionId: 1, Edge: "edge-a", HeartbeatMs: 30000, MaxFrame: 1 << 20, Version: 1, ClientId: "c1", PublishWindow: 2})
}

func (e *fakeEdge) welcomeWith(w *wirev1.Welcome) *edgeConn { return &edgeConn{e.Welcome(w)} }

func newTestSubscriber(t *testing.T, cfg pushmesh.SubscriberConfig) *pushmesh.Subscriber {
	t.Helper()
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff = time.Millisecond
	}
	cfg.DialTimeout = patience // the edge answers once, to the connection that it was asked on
	cfg.Agent = t.Name()
	s, err := pushmesh.NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// newPipeEdge is for bubbles.
func newPipeEdge(t *testing.T) *fakeEdge { return &fakeEdge{edgetest.NewPipe(t)} }

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }
