package pushmesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// modelEdge keeps WIRE's promises over a finished log of n messages, and breaks connections at
// random: whoever names positions gets everything behind them; a Nacked message comes again, with
// attempt + 1; un-ACKed ones come again at random.
type modelEdge struct {
	rng    *rand.Rand
	n      uint64
	retain bool            // a session: what was ACKed doesn't come again
	floor  map[uint64]bool // ACKed, or named as not to come
	holes  map[uint64]bool
	breaks int
	agent  string
	// acked checks that a message has been dealt with.
	acked func(seq uint64)
}

func (m *modelEdge) serve(conn net.Conn) error {
	var subID uint32
	unacked := map[uint64]uint32{}
	send := func(t wirev1.FrameType, msg proto.Message) {
		frame, err := wire.Append(nil, t, msg)
		if err == nil {
			_, _ = conn.Write(frame)
		}
	}
	// Read apart: a deadline would cut a frame in two on a machine that is busy.
	type frame struct {
		t    wirev1.FrameType
		body []byte
		err  error
	}
	frames, gone := make(chan frame), make(chan struct{})
	defer close(gone)
	go func() {
		for {
			t, body, err := wire.Read(conn, nil, wire.MaxBody)
			select {
			case frames <- frame{t, body, err}:
			case <-gone:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	next, life := uint64(0), 5+m.rng.IntN(60)
	deliver := func(seq uint64, attempt uint32) {
		unacked[seq] = attempt
		send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: "room/a", Seq: seq, Attempt: attempt, Subs: []uint32{subID}})
	}
	for {
		if m.breaks > 0 && life <= 0 {
			m.breaks--
			return errors.New("broken")
		}
		life--
		var in frame
		var quiet bool
		select {
		case in = <-frames:
		case <-time.After(time.Duration(m.rng.IntN(3)) * time.Millisecond):
			quiet = true
		}
		switch {
		case quiet:
			if subID == 0 {
				continue
			}
			if next == m.n && m.breaks == 0 && len(unacked) == 0 {
				return nil
			}
			switch m.rng.IntN(6) {
			case 0: // an ACK timer
				for seq, attempt := range unacked {
					deliver(seq, attempt+1)
					break
				}
			case 1: // a hole
				if next < m.n && m.rng.IntN(10) == 0 {
					next++
					m.floor[next], m.holes[next] = true, true
					send(wirev1.FrameType_FRAME_TYPE_PROGRESS, &wirev1.Progress{Topic: "room/a", Epoch: 7, From: next, To: next, Code: wirev1.Code_CODE_EXPIRED, Subs: []uint32{subID}})
				}
			default:
				for range m.rng.IntN(5) {
					if next < m.n && len(unacked) < 16 {
						next++
						if !m.retain || !m.floor[next] {
							deliver(next, 0)
						}
					}
				}
			}
			continue
		case in.err != nil:
			return in.err
		}
		body := in.body
		switch in.t {
		case wirev1.FrameType_FRAME_TYPE_HELLO:
			var hello wirev1.Hello
			if proto.Unmarshal(body, &hello) != nil || hello.GetAgent() != m.agent {
				return errors.New("a stranger")
			}
			send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 30000})
		case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
			var s wirev1.Subscribe
			if err := proto.Unmarshal(body, &s); err != nil {
				return err
			}
			subID = s.GetId()
			if p := s.GetPositions(); len(p) > 0 {
				next = p[0].GetSeq()
			}
			send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: subID, Epoch: 7, Head: m.n, Recovered: true})
		case wirev1.FrameType_FRAME_TYPE_ACK:
			var a wirev1.Ack
			if err := proto.Unmarshal(body, &a); err != nil {
				return err
			}
			for _, e := range a.GetEntries() {
				for seq := range unacked {
					if seq == e.GetSeq() || e.GetThrough() && seq < e.GetSeq() {
						delete(unacked, seq)
						if !m.floor[seq] {
							m.acked(seq)
						}
						m.floor[seq] = true
					}
				}
			}
		case wirev1.FrameType_FRAME_TYPE_NACK:
			var n wirev1.Nack
			if err := proto.Unmarshal(body, &n); err != nil {
				return err
			}
			if attempt, ok := unacked[n.GetSeq()]; ok {
				deliver(n.GetSeq(), attempt+1)
			}
		}
	}
}

// modelMode is how messages are handed over.
type modelMode string

const (
	byHandler modelMode = "handler"
	byCrew    modelMode = "crew"
	byLoop    modelMode = "loop"
	byHand    modelMode = "manual"
)

// Whatever breaks, and whatever the handler refuses: every message is dealt with exactly once, and
// every one is ACKed after that and not before. That holds for handlers one at a time, several at
// once, loops, and ACKs from wherever and in whichever order.
func TestModelOfRecovery(t *testing.T) {
	for mode, seeds := range map[modelMode]uint64{byHandler: 12, byCrew: 6, byLoop: 6, byHand: 12} {
		for seed := range seeds {
			t.Run(fmt.Sprint(mode, seed), func(t *testing.T) {
				t.Parallel()
				recoverModel(t, mode, seed)
			})
		}
	}
}

func recoverModel(t *testing.T, mode modelMode, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &modelEdge{rng: rng, n: 300, retain: seed%2 == 1, floor: map[uint64]bool{}, holes: map[uint64]bool{}, breaks: 8, agent: t.Name()}
	over := make(chan struct{})
	serve := func() {
		defer close(over)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			err = m.serve(conn)
			_ = conn.Close()
			if err == nil {
				return
			}
		}
	}
	var mu sync.Mutex
	dealt, held, first := map[uint64]int{}, map[uint64]bool{}, uint64(0)
	m.acked = func(seq uint64) {
		mu.Lock()
		defer mu.Unlock()
		if dealt[seq] == 0 {
			t.Errorf("%d was ACKed before a handler had dealt with it", seq)
		}
	}
	refuse := rand.New(rand.NewPCG(seed, 3))
	cfg := SubscriberConfig{Addrs: []string{ln.Addr().String()}, Inline: mode == byHandler && seed%3 == 0, MaxBackoff: 5 * time.Millisecond}
	opts := []Option{WithAck(), FromEarliest()}
	if m.retain {
		cfg.Session, cfg.ClientID = "s", "c"
		opts = []Option{WithAck(), FromSession()}
	}
	go serve()
	s := newTestSubscriber(t, cfg)
	deal := func(d *Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if refuse.IntN(10) == 0 {
			return errors.New("not now")
		}
		if dealt[d.Seq]++; dealt[d.Seq] > 1 {
			t.Errorf("%d was handed over again", d.Seq)
		}
		first = max(first, d.Seq)
		return nil
	}
	var later sync.WaitGroup
	defer later.Wait()
	settle := func(d *Delivery, after time.Duration) {
		<-time.After(after)
		err := deal(d)
		mu.Lock()
		delete(held, d.Seq)
		mu.Unlock()
		if err == nil {
			err = d.Ack()
		} else {
			err = d.Nack(0)
		}
		if err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("%d: %v", d.Seq, err)
		}
	}
	switch mode {
	case byHandler:
		start(t, s, "room/a", func(_ context.Context, d *Delivery) error { return deal(d) }, opts...)
	case byCrew:
		start(t, s, "room/a", func(_ context.Context, d *Delivery) error { return deal(d) }, append(opts, WithConcurrency(4))...)
	case byHand:
		start(t, s, "room/a", func(_ context.Context, d *Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if held[d.Seq] {
				t.Errorf("%d was handed over while it was held", d.Seq)
			}
			held[d.Seq] = true
			after := time.Duration(refuse.IntN(8)) * time.Millisecond
			later.Go(func() { settle(d, after) })
			return nil
		}, append(opts[1:], WithManualAck())...)
	case byLoop:
		sub, err := s.Pull(t.Context(), "room/a", opts...)
		if err != nil {
			t.Fatal(err)
		}
		later.Go(func() {
			for d, err := range sub.Messages(context.Background()) {
				if err == nil && deal(d) != nil {
					err = d.Nack(0)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		defer func() { _ = s.Close(in(t, patience)) }()
	}
	select {
	case <-over:
	case <-time.After(patience):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d of %d dealt with, highest %d; stats %+v", len(dealt), m.n, first, s.Stats())
	}
	_ = ln.Close()
	mu.Lock()
	defer mu.Unlock()
	for seq := uint64(1); seq <= m.n; seq++ {
		if dealt[seq] == 0 && !m.holes[seq] {
			t.Errorf("%d was lost", seq)
		}
	}
}
