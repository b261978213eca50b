package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// heavy is a durable topic with as many messages as a window holds.
const (
	heavy      = Manys + "/heavy/0"
	windowMost = 65_536
	heavySize  = 400 // bytes of a message
)

// fillHeavy publishes a window's worth of messages to one topic, once for a mesh.
func fillHeavy(ctx context.Context, t *Target) (err error) {
	defer try.Catch(&err)
	if t.has(ctx, heavy, uint64(t.of(windowMost))) {
		return nil
	}
	p := try.Get(publisher.New(ctx, t.Router, heavy, heavySize))
	defer func() { err = errors.Join(err, p.Close()) }()
	const batch = 500
	for n := 0; n < t.of(windowMost); n += batch {
		try.Do(p.Publish(min(batch, t.of(windowMost)-n)))
		try.Do(p.Wait(ctx))
	}
	return nil
}

// joinWithin is how long members wait until all are in.
const joinWithin = 5 * time.Second

func windows() []Attack {
	return []Attack{{
		Name: "nack-window", What: "8 connections with a window of 65,536, nothing ACKed, Nacks of an hour", Metric: "pushmesh_edge_queue_memory_used_bytes", Before: fillHeavy,
		Run: func(ctx context.Context, t *Target, c *Codes) error { return nacks(ctx, t, c, 8, 3_600_000, "") },
	}, {
		Name: "nack-loop", What: "8 sessions that Nack every message of others' topics at once, without end", Metric: "pushmesh_edge_nacks_total",
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
		hello := &wirev1.Hello{ReceiveWindow: windowMost}
		sub := &wirev1.Subscribe{Id: 1, Filter: heavy, Ack: true, Start: wirev1.Start_START_EARLIEST, ReceiveWindow: windowMost}
		if session != "" {
			hello.ClientId, hello.Session = fmt.Sprint(session, who), session
			sub.Start, sub.Filter = wirev1.Start_START_SESSION, "room/siege/#"
		}
		x, err := t.greet(ctx, c, hello)
		if err != nil {
			return err
		}
		x.subscribe(sub)
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

// emptyAcks joins first: the entries are to meet every membership.
func emptyAcks(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 4, c, func(ctx context.Context, who int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		groups := t.of(perConnection)
		for i := range groups {
			x.subscribe(&wirev1.Subscribe{Id: uint32(i + 1), Filter: "room/acks", Group: fmt.Sprintf("acks-%d-%d", who, i), Ack: true})
		}
		if err := x.flush(); err != nil {
			return err
		}
		answered, answers := make(chan struct{}), 0
		go x.listen(func(ft wirev1.FrameType, _ []byte) {
			if ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED || ft == wirev1.FrameType_FRAME_TYPE_ERROR {
				if answers++; answers == groups {
					close(answered)
				}
			}
		})
		select {
		case <-answered:
		case <-time.After(joinWithin):
		case <-ctx.Done():
		}
		entries := bytes.Repeat([]byte{0x0a, 0x00}, 8<<10)
		for ctx.Err() == nil {
			x.body(wirev1.FrameType_FRAME_TYPE_ACK, entries)
			if err := x.flush(); err != nil {
				return err
			}
			c.Note("Acks of 8,192 entries")
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
		c.Note("subscribed")
		<-ctx.Done()
		return nil
	})
}
