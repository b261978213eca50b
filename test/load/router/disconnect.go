package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/peer"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	crowd           = 4000 // connections of each edge beside those that are closed
	crowdedEdges    = 3
	disconnects     = 100
	disconnectGoal  = 100 // ms
	disconnectTopic = "room/crowd"
)

// disconnect closes a user's connections, one on each edge, among many others, and looks when the
// clients see it.
func (b *bench) disconnect(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, crowdedEdges))
	defer m.Stop()
	for _, e := range m.Edges {
		s := try.Get(swarm.Dial(ctx, swarm.Config{
			Addr: e.Addr, Conns: crowd, Dialect: swarm.Subscribe(disconnectTopic),
		}))
		defer func() { _ = s.Close() }()
	}
	conn := try.Get(suite.Dial(m.Router.Addr))
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewSessionServiceClient(conn)
	var took []float64
	for i := range disconnects {
		d := try.Get(disconnectOne(ctx, api, m.Edges, fmt.Sprintf("leaver-%d", i)))
		took = append(took, d.Seconds()*1000)
	}
	b.Add(table.AtMost("a user's connections everywhere closed, p99", table.At(took, .99), "ms", disconnectGoal,
		fmt.Sprintf("%d connections on %d edges; p50 %.2f, max %.2f ms, of %d", crowd*crowdedEdges, crowdedEdges, table.At(took, .5), table.At(took, 1), len(took))))
	return nil
}

// disconnectOne returns how long it took from the call until the last connection was told and
// closed.
func disconnectOne(ctx context.Context, api pushmeshv1.SessionServiceClient, edges []*local.Process, id string) (_ time.Duration, err error) {
	defer try.Catch(&err)
	ended := make(chan error, len(edges))
	for _, e := range edges {
		c := try.Get(peer.Dial(ctx, e.Addr, id))
		defer func() { _ = c.Close() }()
		go func() {
			err := c.Await(wirev1.FrameType_FRAME_TYPE_ERROR, nil)
			if err == nil {
				if _, _, more := c.Next(); more == nil {
					err = errors.New("not closed after the Error")
				}
			}
			ended <- err
		}()
	}
	began := time.Now()
	resp := try.Get(api.Disconnect(ctx, &pushmeshv1.DisconnectRequest{User: "client:" + id, Code: wirev1.Code_CODE_FORBIDDEN, Reason: "bench"}))
	if int(resp.GetDisconnected()) != len(edges) {
		return 0, fmt.Errorf("%d connections were closed, not %d", resp.GetDisconnected(), len(edges))
	}
	for range edges {
		err = errors.Join(err, <-ended)
	}
	return time.Since(began), err
}
