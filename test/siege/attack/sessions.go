package attack

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func sessions() []Attack {
	return []Attack{{
		Name: "takeovers", What: "100 connections that take one session over from each other", Metric: "pushmesh_edge_closes_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, t.of(100), c, func(ctx context.Context, _ int) error {
				x, err := t.greet(ctx, c, &wirev1.Hello{ClientId: "taken", Session: "over"})
				if err != nil {
					return err
				}
				x.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/siege/0", Ack: true, Start: wirev1.Start_START_SESSION})
				if err := x.flush(); err != nil {
					return err
				}
				x.listen(nil)
				return nil
			})
		},
	}, {
		Name: "session-flood", What: "40 connections at a time that make a session each, for a year", Metric: "pushmesh_edge_closes_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			turn := make([]int, t.of(40))
			return many(ctx, len(turn), c, func(ctx context.Context, who int) error {
				turn[who]++
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				x, err := t.greet(ctx, c, &wirev1.Hello{ClientId: fmt.Sprintf("flood-%d-%d", who, turn[who]), Session: "s", SessionTtlS: 366 * 86_400})
				if err != nil {
					return err
				}
				x.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/siege/0", Ack: true, Start: wirev1.Start_START_SESSION})
				if err := x.flush(); err != nil {
					return err
				}
				x.listen(func(ft wirev1.FrameType, _ []byte) {
					if ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
						cancel()
					}
				})
				return nil
			})
		},
	}}
}
