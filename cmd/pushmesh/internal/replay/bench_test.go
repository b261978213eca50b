package replay

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// window is how many messages the benchmark's edge sends before it waits for their ACK.
const window = 64

// blast is an edge that sends one subscriber n messages, a window at a time.
func blast(b *testing.B, conn net.Conn, n int, payload []byte) {
	answer := func(want wirev1.FrameType, with wirev1.FrameType, m proto.Message) {
		if ft, _, err := wire.Read(conn, nil, wire.MaxBody); err != nil || ft != want {
			b.Errorf("%v %v", ft, err)
		}
		frame, err := wire.Append(nil, with, m)
		if err != nil {
			b.Error(err)
		}
		_, _ = conn.Write(frame)
	}
	answer(wirev1.FrameType_FRAME_TYPE_HELLO, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 30000})
	answer(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: 1, Epoch: fakeEpoch, Recovered: true})
	body, _ := wire.Body(&wirev1.Message{Payload: payload, PublishedAt: 1, Id: make([]byte, 16)})
	var out, in []byte
	for seq := 1; seq <= n; {
		out = out[:0]
		last := min(seq+window-1, n)
		for ; seq <= last; seq++ {
			out = wire.AppendMessage(out, "room/bench/chat", uint64(seq), body)
		}
		_, _ = conn.Write(out)
		for acked := uint64(0); acked < uint64(last); {
			ft, body, err := wire.Read(conn, in, wire.MaxBody)
			if err != nil {
				b.Error(err)
				return
			}
			var ack wirev1.Ack
			if ft != wirev1.FrameType_FRAME_TYPE_ACK || proto.Unmarshal(body, &ack) != nil {
				continue
			}
			for _, e := range ack.GetEntries() {
				acked = max(acked, e.GetSeq())
			}
		}
	}
}

// What a delivery costs the client, the same edge included: the reason why a replay has a
// subscriber of its own.
func BenchmarkDelivery(b *testing.B) {
	payload, err := mark{run: 1}.payload("someone", "a line of chat as people write them")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("replay", func(b *testing.B) {
		run(b, payload, func(addr string, done func()) func() {
			m := newMeter()
			f := &fleet{run: 1, edges: []string{addr}, meter: m, handshakes: make(chan struct{}, 1)}
			s := &subscriber{fleet: f, topic: "room/bench/chat", check: NewChecker(1)}
			ctx, cancel := context.WithCancel(context.Background())
			f.subs = append(f.subs, s)
			f.start(ctx, func(err error) { b.Error(err) })
			go func() {
				for m.acked.Load() < uint64(b.N) {
					time.Sleep(time.Millisecond) //nolint:forbidigo // a benchmark's end may be late by a millisecond
				}
				done()
			}()
			return func() { cancel(); f.wait() }
		})
	})
	b.Run("sdk", func(b *testing.B) {
		run(b, payload, func(addr string, done func()) func() {
			sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{addr}, Inline: true, AckDelay: 50 * time.Microsecond})
			if err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			_, err = sub.Start("room/bench/chat", func(_ context.Context, d *pushmesh.Delivery) error {
				if _, ok := readMark(d.Payload); !ok {
					b.Error("no mark")
				}
				if n.Add(1) == int64(b.N) {
					done()
				}
				return nil
			}, pushmesh.WithAck())
			if err != nil {
				b.Fatal(err)
			}
			return func() { _ = sub.Close(context.Background()) }
		})
	})
}

func run(b *testing.B, payload []byte, start func(addr string, done func()) (stop func())) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	blasted := make(chan struct{})
	go func() {
		defer close(blasted)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		blast(b, conn, b.N, payload)
	}()
	before := cpu(b)
	all := make(chan struct{})
	stop := start(l.Addr().String(), func() { close(all) })
	<-all
	<-blasted
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
	b.StopTimer()
	stop()
}

// cpu is the processor time of this process: the SDK's ACKs wait for others, which costs time
// alone.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
