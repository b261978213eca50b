package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/local"
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
	hello := try.Get(wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: id, HeartbeatMs: swarm.Never}))
	ended := make(chan error, len(edges))
	for _, e := range edges {
		c := try.Get((&net.Dialer{}).DialContext(ctx, "tcp", e.Addr))
		defer func() { _ = c.Close() }()
		try.Get(c.Write(hello))
		try.Do(readFrame(c, wirev1.FrameType_FRAME_TYPE_WELCOME))
		go func() {
			err := readFrame(c, wirev1.FrameType_FRAME_TYPE_ERROR)
			if err == nil {
				if _, more := c.Read(make([]byte, 1)); more == nil {
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

// readFrame reads one frame, which must be of type want, within a minute.
func readFrame(c net.Conn, want wirev1.FrameType) error {
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	got, _, err := wire.Read(c, nil, 1<<20)
	if err == nil && got != want {
		err = fmt.Errorf("%v came, not %v", got, want)
	}
	return err
}
