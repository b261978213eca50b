package router

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/swarm"
)

// moves has one connection subscribe and unsubscribe, and times in ms how long each is in coming to
// the caller of Watch.
func (w *watcher) moves(ctx context.Context, edge string) (joins, leaves []float64, err error) {
	const name = "mover"
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", edge)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.Close() }()
	say := func(t wirev1.FrameType, m proto.Message, answer wirev1.FrameType) error {
		frame, err := wire.Append(nil, t, m)
		if err == nil {
			_, err = c.Write(frame)
		}
		if err == nil {
			err = readFrame(c, answer)
		}
		return err
	}
	err = say(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: name, HeartbeatMs: swarm.Never}, wirev1.FrameType_FRAME_TYPE_WELCOME)
	for i := 0; i < 2*presenceMoves && err == nil; i++ {
		began, left := time.Now(), i%2 == 1
		if left {
			err = say(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1}, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED)
		} else {
			err = say(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: presenceTopic}, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED)
		}
		took := time.Duration(0)
		if err == nil {
			took, err = w.change(began, left)
		}
		if left {
			leaves = append(leaves, took.Seconds()*1000)
		} else {
			joins = append(joins, took.Seconds()*1000)
		}
	}
	return joins, leaves, err
}

// change waits for the next change, which must be of one member.
func (w *watcher) change(began time.Time, left bool) (time.Duration, error) {
	resp, err := w.stream.Recv()
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if all := resp.GetChanges(); len(all) != 1 || all[0].GetLeft() != left {
		return 0, fmt.Errorf("not the one change: %v", all)
	}
	return took, nil
}
