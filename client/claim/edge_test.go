package claim

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/edgetest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type fakeEdge struct{ *edgetest.Edge }

// edgeConn answers Claims.
type edgeConn struct{ *edgetest.Conn }

func newFakeEdge(t *testing.T) *fakeEdge {
	t.Helper()
	return &fakeEdge{edgetest.New(t)}
}

// newPipeEdge is for bubbles.
func newPipeEdge(t *testing.T) *fakeEdge { return &fakeEdge{edgetest.NewPipe(t)} }

func (e *fakeEdge) welcome() *edgeConn { return e.welcomeWith(edgetest.Plain()) }

func (e *fakeEdge) welcomeWith(w *wirev1.Welcome) *edgeConn { return &edgeConn{e.Welcome(w)} }

// pass lets the time of a bubble pass.
func pass(d time.Duration) { <-time.After(d) }
