package attack

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func frames() []Attack {
	return []Attack{{
		Name: "frames", What: "8 connections that send frames of every type as fast as they are read", Metric: "pushmesh_edge_reads_deferred_total",
		Run: everyFrame,
	}, {
		Name: "largest", What: "8 connections that send frames of 1 MiB: Acks, Publishes, Subscribes with positions", Metric: "pushmesh_edge_reads_deferred_total",
		Run: largest,
	}, {
		Name: "client-publish", What: "40 clients that publish as fast as they are read, whatever they are answered", Metric: "pushmesh_edge_client_publishes_total",
		Run: clientPublish,
	}, {
		Name: "claims", What: "50 connections that acquire, watch, release and leave 1,000 resources", Metric: "pushmesh_edge_claim_requests_total",
		Run: claims,
	}}
}

// everyFrame sends what a client may send, one of each, in turns, and what it may not.
func everyFrame(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, 8, c, func(ctx context.Context, who int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go x.listen(nil)
		for id := uint32(1); ctx.Err() == nil; id += 8 {
			x.subscribe(&wirev1.Subscribe{Id: id, Filter: fmt.Sprintf("frames/%d/%d", who, id%500)})
			x.add(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(id)})
			x.add(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/siege/0", Seq: uint64(id)}}})
			x.add(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/siege/0", Seq: uint64(id)})
			x.add(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id + 1, Topic: Clients + "/frames", Payload: []byte("x")})
			x.add(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id + 2, Resource: Claimed + "/r", Op: wirev1.Claim_OP_CHECK})
			x.add(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: id + 3, Token: "t"})
			x.add(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
			x.body(0x90, []byte("of a later edition"))
			if id%4001 == 0 {
				x.body(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, nil) // ends the connection
			}
			if len(x.buf) > 32<<10 {
				if err := x.flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// largest sends bodies just below the bound.
func largest(ctx context.Context, t *Target, c *Codes) error {
	const room = 1<<20 - 1024
	positions := &wirev1.Subscribe{Id: 1, Filter: Manys + "/#"}
	for i := 0; proto.Size(positions) < room; i += 500 {
		for k := range 500 {
			positions.Positions = append(positions.Positions, &wirev1.Position{Topic: manyTopic(i + k), Seq: 1})
		}
	}
	positions.Positions = positions.Positions[:len(positions.Positions)-600]
	ack := &wirev1.Ack{}
	for proto.Size(ack) < room-40_000 {
		for range 1000 {
			ack.Entries = append(ack.Entries, &wirev1.Ack_Entry{Topic: "room/siege/0", Seq: 1, Through: true})
		}
	}
	return many(ctx, 8, c, func(ctx context.Context, who int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{})
		if err != nil {
			return err
		}
		go x.listen(nil)
		for id := uint32(1); ctx.Err() == nil; id += 2 {
			positions := &wirev1.Subscribe{Id: id, Filter: positions.GetFilter(), Positions: positions.GetPositions()}
			x.add(wirev1.FrameType_FRAME_TYPE_ACK, ack)
			x.add(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id + 1, Topic: fmt.Sprint(Clients, "/largest/", who), Payload: make([]byte, room)})
			x.subscribe(positions)
			x.add(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
			if err := x.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

func clientPublish(ctx context.Context, t *Target, c *Codes) error {
	return many(ctx, t.of(40), c, func(ctx context.Context, who int) error {
		x, err := t.greet(ctx, c, &wirev1.Hello{ClientId: fmt.Sprint("publisher-", who)})
		if err != nil {
			return err
		}
		go x.listen(nil)
		for id := uint32(1); ctx.Err() == nil; id += 64 {
			for i := range uint32(64) {
				x.add(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id + i, Topic: fmt.Sprintf("%s/p/%d", Clients, i), Payload: make([]byte, 64)})
			}
			if err := x.flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

func claims(ctx context.Context, t *Target, c *Codes) error {
	ops := []wirev1.Claim_Op{wirev1.Claim_OP_ACQUIRE, wirev1.Claim_OP_WATCH, wirev1.Claim_OP_CHECK, wirev1.Claim_OP_LEAVE, wirev1.Claim_OP_ACQUIRE}
	return many(ctx, t.of(50), c, func(ctx context.Context, who int) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		x, err := t.greet(ctx, c, &wirev1.Hello{ClientId: fmt.Sprint("claimant-", who)})
		if err != nil {
			return err
		}
		go x.listen(nil)
		for id := uint32(1); ctx.Err() == nil; id++ {
			x.add(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{
				Id: id, Resource: fmt.Sprintf("%s/%d", Claimed, int(id)%t.of(1000)), Op: ops[int(id)/t.of(1000)%len(ops)], TtlMs: 1000,
			})
			if id%50 == 0 {
				if err := x.flush(); err != nil {
					return err
				}
				pause(ctx, 5*time.Millisecond)
			}
		}
		return nil
	})
}
