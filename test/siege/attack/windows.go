package attack

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// heavy is a durable topic with as many messages as a window holds.
const (
	heavy       = Manys + "/heavy/0"
	windowMost  = 65_536
	heavyHeader = 400 // bytes of a message
)

// fillHeavy publishes a window's worth of messages to one topic, once for a mesh.
func fillHeavy(ctx context.Context, t *Target) error {
	conn, err := t.router()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewPublishServiceClient(conn)
	var next, failed atomic.Int64
	done := make(chan error, 16)
	for range cap(done) {
		go func() {
			var err error
			for n := next.Add(1); int(n) <= t.of(windowMost) && err == nil; n = next.Add(1) {
				req := &pushmeshv1.PublishRequest{Topic: heavy, Payload: make([]byte, heavyHeader), DedupeKey: fmt.Sprint("heavy-", n)}
				err = insist(ctx, func() error { _, err := api.Publish(as(ctx, "fill"), req); return err })
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err = <-done; err != nil {
			failed.Add(1)
		}
	}
	if failed.Load() > 0 {
		return fmt.Errorf("fill %s: %w", heavy, err)
	}
	return nil
}

func windows() []Attack {
	return []Attack{{
		Name: "nack-window", What: "8 connections with a window of 65,536, nothing ACKed, Nacks of an hour", Metric: "pushmesh_edge_queue_memory_used_bytes", Before: fillHeavy,
		Run: func(ctx context.Context, t *Target, c *Codes) error { return nacks(ctx, t, c, 8, 3_600_000, "") },
	}, {
		Name: "nack-loop", What: "8 sessions that Nack every message at once, without end", Metric: "pushmesh_edge_dead_letters_total", Before: fillHeavy,
		Run: func(ctx context.Context, t *Target, c *Codes) error { return nacks(ctx, t, c, 8, 0, "nacks") },
	}, {
		Name: "acks", What: "4 connections, members of 1,000 groups each, whose Acks are 2-byte entries without end", Metric: "pushmesh_edge_reads_deferred_total",
		Run: emptyAcks,
	}, {
		Name: "never-reading", What: "200 subscribers of the topics of others and of a long log who never read", Metric: "pushmesh_edge_queued_bytes", Before: fillHeavy,
		Run: neverReading,
	}}
}

func nacks(ctx context.Context, t *Target, c *Codes, conns int, delay uint32, session string) error {
	return many(ctx, conns, c, func(ctx context.Context, who int) error {
		hello, start := &wirev1.Hello{ReceiveWindow: windowMost}, wirev1.Start_START_EARLIEST
		if session != "" {
			hello.ClientId, hello.Session = fmt.Sprint(session, who), session
		}
		x, err := t.greet(ctx, c, hello)
		if err != nil {
			return err
		}
		x.subscribe(&wirev1.Subscribe{Id: 1, Filter: heavy, Ack: true, Start: start, ReceiveWindow: windowMost})
		if err := x.flush(); err != nil {
			return err
		}
		out := &conn{Conn: x.Conn, codes: c}
		x.listen(func(ft wirev1.FrameType, body []byte) {
			var m wirev1.Message
			if ft == wirev1.FrameType_FRAME_TYPE_MESSAGE && proto.Unmarshal(body, &m) == nil {
				out.add(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: m.GetTopic(), Seq: m.GetSeq(), DelayMs: delay})
				_ = out.flush() // the reader sees the end
			}
		})
		return nil
	})
}

func emptyAcks(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 4, c, func(ctx context.Context, who int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go x.listen(nil)
		for i := range t.of(perConnection) {
			x.subscribe(&wirev1.Subscribe{Id: uint32(i + 1), Filter: "room/acks", Group: fmt.Sprintf("acks-%d-%d", who, i), Ack: true})
		}
		entries := bytes.Repeat([]byte{0x0a, 0x00}, 8<<10)
		for ctx.Err() == nil {
			x.body(wirev1.FrameType_FRAME_TYPE_ACK, entries)
			if err := x.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

func neverReading(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, t.of(200), c, func(ctx context.Context, _ int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{ReceiveWindow: windowMost})
		if err != nil {
			return err
		}
		x.subscribe(&wirev1.Subscribe{Id: 1, Filter: "siege/live/+"})
		x.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/siege/+"})
		x.subscribe(&wirev1.Subscribe{Id: 3, Filter: heavy, Start: wirev1.Start_START_EARLIEST})
		if err := x.flush(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
}
