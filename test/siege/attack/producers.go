package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func producers() []Attack {
	return []Attack{{
		Name: "calls", What: "producers with 10,000 calls under way", Metric: "pushmesh_router_admission_refusals_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return t.calls(ctx, c, t.of(10_000), func(_, _ int) *pushmeshv1.PublishRequest {
				return &pushmeshv1.PublishRequest{Topic: "room/calls", Payload: make([]byte, 128)}
			})
		},
	}, {
		Name: "many-topics", What: "a producer that makes a topic with each message, with headers as large as they may be", Metric: "pushmesh_router_publishes_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			headers := map[string]string{}
			for i := range 16 {
				headers[fmt.Sprint("h", i)] = strings.Repeat("v", 200)
			}
			return t.calls(ctx, c, 50, func(who, n int) *pushmeshv1.PublishRequest {
				return &pushmeshv1.PublishRequest{Topic: fmt.Sprintf("room/made/%d/%d", who, n), Headers: headers}
			})
		},
	}, {
		Name: "unread-streams", What: "100 streams that publish and never read an answer", Metric: "pushmesh_router_admission_refusals_total",
		Run: unreadStreams,
	}}
}

// calls makes so many at once over ten connections, as producers with ten names.
func (t *Target) calls(ctx context.Context, c *Codes, n int, req func(who, n int) *pushmeshv1.PublishRequest) error {
	const callers = 10
	var conns []*grpc.ClientConn
	for range callers {
		conn, err := t.router()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	turn := make([]int, n)
	return many(ctx, n, c, func(ctx context.Context, who int) error {
		turn[who]++
		_, err := pushmeshv1.NewPublishServiceClient(conns[who%callers]).Publish(as(ctx, fmt.Sprint("hostile-", who%callers)), req(who, turn[who]))
		if ctx.Err() == nil {
			c.Error(err)
		}
		return nil
	})
}

func unreadStreams(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, t.of(100), c, func(ctx context.Context, who int) error {
		conn, err := t.router(grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		s, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(as(ctx, fmt.Sprint("unread-", who)))
		if err != nil {
			return err
		}
		for ref := uint64(1); ctx.Err() == nil; ref++ {
			if err := s.Send(&pushmeshv1.PublishStreamRequest{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: "siege/unread", Payload: make([]byte, 1024)}}); err != nil {
				_, err = s.Recv()
				for err == nil { // what it ended with stands behind the answers
					_, err = s.Recv()
				}
				if ctx.Err() == nil {
					c.Error(err)
				}
				pause(ctx, 100*time.Millisecond)
				return nil
			}
			c.Note("sent")
		}
		return nil
	})
}
