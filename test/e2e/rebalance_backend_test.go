package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Streams of backends that an edge hands on go to another, whether the router moves them or their
// backends open them anew, and not back to the one that sent them away: it goes on taking
// connections, and has the fewest by then.
func TestBackendsThatAreSentAwayDoNotComeBack(t *testing.T) {
	t.Parallel()
	const streams = 8
	m := harness.Start(t, harness.Options{Edges: 2})
	conn := m.Router(t)
	ctx, cancel := context.WithTimeout(t.Context(), backend.Patience)
	defer cancel()
	mesh := pushmeshv1.NewMeshServiceClient(conn)
	open := func(i int, move bool) (*backend.Stream, string) {
		s, welcome := backend.Open(t, conn, &wirev1.Hello{ClientId: fmt.Sprint("worker-", i), Session: "main"}, move)
		t.Cleanup(s.Close)
		return s, welcome.GetEdge()
	}
	var here []*backend.Stream
	for i := 0; len(here) < streams; i++ {
		s, edge := open(i, len(here)%2 == 0)
		if edge == "edge-1" {
			here = append(here, s)
		}
	}
	sendAway := func() (told uint64, err error) {
		resp, err := mesh.Rebalance(ctx, &pushmeshv1.RebalanceRequest{Edge: "edge-1", Share: 1, Within: durationpb.New(10 * time.Millisecond)})
		return resp.GetConnections(), err
	}
	var told uint64
	procmesh.Await(t, "the edge knows all of them", func() bool {
		n, err := sendAway()
		told += n
		return err == nil && told >= streams
	})
	// An edge that does not answer within half a second is passed over, and a busy machine has
	// that: who comes back to the first edge is sent away again.
	const tries = 5
	for i, s := range here {
		if i%2 == 0 {
			at := s.Must().GetWelcome().GetEdge()
			for try := 1; at != "edge-2" && try < tries; try++ {
				procmesh.Await(t, "the edge knows the stream that came back", func() bool {
					n, err := sendAway()
					return err == nil && n > 0
				})
				at = s.Must().GetWelcome().GetEdge()
			}
			if at != "edge-2" {
				t.Errorf("stream %d goes on at %q", i, at)
			}
			continue
		}
		if got := s.Must().GetGoAway(); got.GetCode() != wirev1.Code_CODE_DRAINING {
			t.Errorf("stream %d is told %v", i, got)
		}
		s.Close()
		edge := ""
		for try := 0; edge != "edge-2" && try < tries; try++ {
			_, edge = open(i, false)
		}
		if edge != "edge-2" {
			t.Errorf("stream %d, opened anew, is at %q", i, edge)
		}
	}
}
