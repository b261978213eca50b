package router

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/peer"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// moves has one connection subscribe and unsubscribe, and times in ms how long each is in coming to
// the caller of Watch.
func (w *watcher) moves(ctx context.Context, edge string) (joins, leaves []float64, err error) {
	defer try.Catch(&err)
	c := try.Get(peer.Dial(ctx, edge, "mover"))
	defer func() { _ = c.Close() }()
	for range presenceMoves {
		began := time.Now()
		try.Do(c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: presenceTopic}))
		try.Do(c.Await(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, nil))
		joins = append(joins, try.Get(w.change(began, false)).Seconds()*1000)
		began = time.Now()
		try.Do(c.Send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1}))
		try.Do(c.Await(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, nil))
		leaves = append(leaves, try.Get(w.change(began, true)).Seconds()*1000)
	}
	return joins, leaves, nil
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
