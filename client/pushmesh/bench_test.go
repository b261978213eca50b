package pushmesh

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

const benchEdge = "PUSHMESH_TEST_BENCH_EDGE"

// TestMain lets the test binary be the edge of BenchmarkDeliveries, so that its CPU time isn't
// counted as the client's.
func TestMain(m *testing.M) {
	if rate := os.Getenv(benchEdge); rate != "" {
		var n int
		if _, err := fmt.Sscan(rate, &n); err != nil {
			panic(err)
		}
		paceEdge(n)
		return
	}
	os.Exit(m.Run())
}

// paceEdge sends rate messages a second, over all connections in turn, until its stdin ends. It
// prints its address first and the number of ACK bytes last.
func paceEdge(rate int) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				br := bufio.NewReaderSize(c, 1024)
				for {
					t, body, err := wire.Read(br, nil, wire.MaxBody)
					if err != nil {
						return
					}
					switch t {
					case wirev1.FrameType_FRAME_TYPE_HELLO:
						w, _ := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1})
						_, _ = c.Write(w)
					case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
						var s wirev1.Subscribe
						_ = proto.Unmarshal(body, &s)
						w, _ := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: s.GetId(), Epoch: 1})
						_, _ = c.Write(w)
						mu.Lock()
						conns = append(conns, c)
						mu.Unlock()
					}
				}
			}()
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	body, _ := wire.Body(&wirev1.Message{Payload: make([]byte, 64), Id: make([]byte, 16), PublishedAt: 1})
	seqs := map[net.Conn]uint64{}
	began, sent, at := time.Now(), 0, 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		mu.Lock()
		all := conns
		mu.Unlock()
		for len(all) > 0 && sent < int(time.Since(began).Seconds()*float64(rate)) {
			c := all[at%len(all)]
			at++
			sent++
			seqs[c]++
			_, _ = c.Write(wire.AppendMessage(nil, "room/a", seqs[c], body))
		}
		if len(all) == 0 {
			began = time.Now()
		}
		<-tick.C
	}
}

// BenchmarkDeliveries takes messages at a given rate over many connections, ACKing each, and
// reports the client's CPU time for one. The edge is another process.
func BenchmarkDeliveries(b *testing.B) {
	for _, c := range []struct {
		conns, rate int
		inline      bool
		delay       time.Duration
	}{
		{2000, 50_000, true, 2 * time.Millisecond},
		{2000, 50_000, true, 20 * time.Millisecond},
		{2000, 50_000, false, 2 * time.Millisecond},
		{200, 50_000, true, 2 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("conns=%d/rate=%d/inline=%v/delay=%v", c.conns, c.rate, c.inline, c.delay), func(b *testing.B) {
			addr, stop := startPaceEdge(b, c.rate)
			defer stop()
			var got atomic.Int64
			handler := func(context.Context, *Delivery) error {
				got.Add(1)
				return nil
			}
			var subs []*Subscriber
			for range c.conns {
				s, err := NewSubscriber(SubscriberConfig{Addrs: []string{addr}, Inline: c.inline, AckDelay: c.delay})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Subscribe(b.Context(), "room/a", handler, WithAck()); err != nil {
					b.Fatal(err)
				}
				subs = append(subs, s)
			}
			b.ReportAllocs()
			b.ResetTimer() // bytes and allocations are those of messages
			from, began, before := got.Load(), time.Now(), cpu(b)
			tick := time.NewTicker(time.Millisecond)
			for got.Load()-from < int64(b.N) {
				<-tick.C
			}
			tick.Stop()
			b.StopTimer()
			n := float64(got.Load() - from)
			b.ReportMetric((cpu(b)-before).Seconds()*1e6/n, "cpu-µs/delivery")
			b.ReportMetric(n/time.Since(began).Seconds(), "deliveries/s")
			var wg sync.WaitGroup
			for _, s := range subs {
				wg.Add(1)
				go func() {
					defer wg.Done()
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = s.Close(ctx)
				}()
			}
			wg.Wait()
		})
	}
}

// BenchmarkHandOver takes messages of one topic, from the body of their frame to their ACK, without
// sockets and other goroutines.
func BenchmarkHandOver(b *testing.B) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	s, err := NewSubscriber(SubscriberConfig{Addrs: []string{"edge"}, Inline: true, AckDelay: time.Hour, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if err != nil {
		b.Fatal(err)
	}
	l := link.New(near)
	l.SetWelcome(&wirev1.Welcome{Version: 1})
	s.connected(l)
	sub, err := s.Start("room/a", fine, WithAck())
	if err != nil {
		b.Fatal(err)
	}
	s.mu.Lock()
	sub.subscribed(&wirev1.Subscribed{Id: sub.request.GetId(), Epoch: 7, Recovered: true})
	s.mu.Unlock()
	r := reader{s: s, l: l, names: map[string]string{}}
	body, err := wire.Body(&wirev1.Message{Payload: make([]byte, 64), Id: make([]byte, 16), PublishedAt: 1})
	if err != nil {
		b.Fatal(err)
	}
	var frame []byte
	seq := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		seq++
		frame = wire.AppendMessage(frame[:0], "room/a", seq, body)
		if err := r.message(frame[wire.HeaderSize:]); err != nil {
			b.Fatal(err)
		}
	}
	if st := s.Stats(); st.Delivered != seq || st.Acked != seq {
		b.Fatalf("%+v", st)
	}
	b.StopTimer()
	_ = s.Close(b.Context())
}

func startPaceEdge(b *testing.B, rate int) (addr string, stop func()) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint(benchEdge, "=", rate))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
