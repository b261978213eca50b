package attack

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

func connections() []Attack {
	return []Attack{{
		Name: "connects", What: "64 connections at a time that come and leave, every other one without Hello", Metric: "pushmesh_edge_closes_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, 64, c, func(ctx context.Context, who int) error {
				x, err := t.raw(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = x.Close() }()
				if who%2 == 0 {
					c.Note("left without Hello")
					return nil
				}
				h, err := greetOn(x, c, &wirev1.Hello{})
				if err != nil {
					return err
				}
				_ = x.SetReadDeadline(time.Now().Add(5 * time.Second))
				ft, body, err := wire.Read(x, nil, wire.MaxBody)
				if err == nil {
					h.count(ft, body)
				}
				return err
			})
		},
	}, {
		Name: "half-open", What: "2,000 connections that say nothing, or Hello a byte at a time", Metric: "pushmesh_edge_closes_total",
		Run: halfOpen,
	}, {
		Name: "garbage", What: "64 connections at a time that send what is not the protocol", Metric: "pushmesh_edge_closes_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			all := [][]byte{
				[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
				{0, 0, 1, 1, 0xff},
				{0, 0xff, 0xff, 1},
				{0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5},
				[]byte("PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r\n"),
				{0x10, 0x0c, 0, 4},
				make([]byte, 64<<10),
			}
			return many(ctx, 64, c, func(ctx context.Context, who int) error {
				x, err := t.raw(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = x.Close() }()
				g := &conn{Conn: x, codes: c}
				_ = x.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := x.Write(all[who%len(all)]); err != nil {
					return err
				}
				if who%len(all) == 3 { // TLS answers with an alert, which is no frame
					_, _ = io.Copy(io.Discard, x)
					return nil
				}
				g.listen(nil)
				return nil
			})
		},
	}, {
		Name: "reconnects", What: "10,000 clients with two subscriptions each that come and leave together", Metric: "pushmesh_edge_closes_total",
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			return many(ctx, t.of(10_000), c, func(ctx context.Context, who int) error {
				err := t.burst(ctx, c, 2, 3*time.Second, func(i int) *wirev1.Subscribe {
					return &wirev1.Subscribe{Filter: fmt.Sprintf("room/siege/%d", (who+i)%20), Ack: true, Start: wirev1.Start_START_LAST_N, Seq: 5}
				})
				return err
			})
		},
	}}
}

func halfOpen(ctx context.Context, t *Target, c *Codes) error {
	hello, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: "a-client-with-a-long-name"})
	if err != nil {
		return err
	}
	return many(ctx, t.of(2000), c, func(ctx context.Context, who int) error {
		x, err := t.raw(ctx)
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { _ = x.Close() })()
		defer func() { _ = x.Close() }()
		if who%2 == 1 {
			go func() {
				for i := range hello {
					if _, err := x.Write(hello[i : i+1]); err != nil {
						return
					}
					pause(ctx, 500*time.Millisecond)
				}
			}()
		}
		(&conn{Conn: x, codes: c}).listen(nil)
		return nil
	})
}
