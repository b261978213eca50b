package loop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// securedByHand is a loop that takes TLS and is turned by the test, and what its clients need.
func securedByHand(t testing.TB) (*Loop, *upstreamtest.Mesh, *tls.Config) {
	t.Helper()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Certificate("localhost")
	if err != nil {
		t.Fatal(err)
	}
	var l *Loop
	pool := handshake.New(handshake.Config{
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Workers: 1, Most: 1,
		Post: func(_ uint16, e exchange.Event) bool { return l.Post(e) },
	})
	l, mesh := byHandIn(t, Config{Handshakes: pool})
	t.Cleanup(func() {
		if err := pool.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l, mesh, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
}

// audience is subscribers of one topic whose sockets are read as they are, so that nobody opens
// records.
type audience struct {
	topic  string
	fds    []int
	rounds []time.Duration // what the loop took to deliver to all
}

// join brings n subscribers, with TLS where cfg is given, to a loop that is turned meanwhile.
func (a *audience) join(t testing.TB, l *Loop, n int, cfg *tls.Config) {
	t.Helper()
	a.come(t, l, n, func(raw net.Conn, name string) {
		c := &client{t, raw}
		if cfg != nil {
			secure := tls.Client(raw, cfg)
			if err := secure.Handshake(); err != nil {
				t.Error(err)
				return
			}
			c.Conn = secure
		}
		a.subscribe(c, name)
	})
}

func (a *audience) subscribe(c *client, name string) {
	c.hello(&wirev1.Hello{ClientId: name, HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: a.topic})
}

// come brings n connections that subscribe in their way.
func (a *audience) come(t testing.TB, l *Loop, n int, subscribe func(raw net.Conn, name string)) {
	t.Helper()
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		for i := range n {
			raw := dial(t, l).Conn
			f, err := raw.(*net.TCPConn).File() // a duplicate without a deadline of its own
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = f.Close() })
			subscribe(raw, fmt.Sprint(a.topic, i))
			a.fds = append(a.fds, int(f.Fd())) // which makes it blocking
		}
	}()
	for going := true; going; l.turn() {
		select {
		case <-joined:
			going = false
		default:
		}
	}
	for _, fd := range a.fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
}

// deliver turns the loop until nothing is left to do, and then reads what has come.
func (a *audience) deliver(t testing.TB, l *Loop, buf []byte) {
	t.Helper()
	before, began := l.stats.WriteBytes, time.Now()
	for l.turn() || l.hub.Stats().QueuedBytes > 0 {
	}
	a.rounds = append(a.rounds, time.Since(began))
	left := int(l.stats.WriteBytes - before)
	for _, fd := range a.fds {
		for n, err := poll.Read(fd, buf); err == nil; n, err = poll.Read(fd, buf) {
			left -= n
		}
	}
	if left != 0 {
		t.Fatalf("%d bytes have not come", left)
	}
}

// A run of messages is sealed from where it lies, for as many as get it; only what lies in several
// places is brought together.
func TestARunIsSealedFromWhereItLies(t *testing.T) {
	l, mesh, cfg := securedByHand(t)
	a := &audience{topic: "room/1"}
	a.join(t, l, 3, cfg)
	buf := make([]byte, 256<<10)
	for _, sizes := range [][]int{{128}, {1, 20 << 10, 300}, {100 << 10}} {
		var payloads []string
		for _, n := range sizes {
			payloads = append(payloads, string(make([]byte, n)))
		}
		mesh.Send(a.topic, payloads...)
		a.deliver(t, l, buf)
		if l.frames != nil {
			t.Fatalf("messages of %v bytes were copied", sizes)
		}
	}
	mesh.Send(a.topic, "one")
	mesh.Send("room/2", "another lies between")
	mesh.Send(a.topic, "two")
	if a.deliver(t, l, buf); l.frames == nil {
		t.Fatal("two messages that do not lie side by side were not brought together")
	}
}

// What TLS costs a loop for a delivery, beside the same without, in turns: the fastest of twenty
// rounds each, since a round takes a millisecond and other work on the machine comes in between.
// It is not CPU time, of which some systems lose a part while a loop is in long system calls.
func BenchmarkFanOutOverTLS(b *testing.B) {
	const conns = 128
	for _, inFlight := range []int{1, 64} {
		b.Run(fmt.Sprintf("in flight %d", inFlight), func(b *testing.B) {
			l, mesh, cfg := securedByHand(b)
			plain, sealed := &audience{topic: "room/plain"}, &audience{topic: "room/sealed"}
			plain.join(b, l, conns, nil)
			sealed.join(b, l, conns, cfg)
			payloads := make([]string, inFlight)
			for i := range payloads {
				payloads[i] = fmt.Sprintf("%0128d", i)
			}
			buf, size := make([]byte, 256<<10), 0
			b.ReportAllocs()
			for b.Loop() {
				size = 0
				for _, a := range []*audience{plain, sealed} {
					for _, m := range mesh.Send(a.topic, payloads...) {
						size += len(m.Frame)
					}
					a.deliver(b, l, buf)
				}
			}
			each := func(a *audience) float64 {
				slices.Sort(a.rounds)
				return float64(a.rounds[len(a.rounds)/20].Nanoseconds()) / (conns * float64(inFlight))
			}
			b.ReportMetric(float64(size)/float64(2*inFlight), "B/delivery")
			b.ReportMetric(each(plain), "plain-ns/delivery")
			b.ReportMetric(each(sealed), "tls-ns/delivery")
			b.ReportMetric(each(sealed)/each(plain), "tls/plain")
		})
	}
}

// What a delivery to a WebSocket costs a loop, in a binary message and as JSON, beside a native
// one.
func BenchmarkFanOutByWebSocket(b *testing.B) {
	const conns = 128
	for _, inFlight := range []int{1, 64} {
		b.Run(fmt.Sprintf("in flight %d", inFlight), func(b *testing.B) {
			l, mesh := byHandIn(b, Config{})
			native, web, text := &audience{topic: "room/native"}, &audience{topic: "room/web"}, &audience{topic: "room/text"}
			native.join(b, l, conns, nil)
			web.come(b, l, conns, func(raw net.Conn, name string) { web.subscribe(upgraded(b, raw), name) })
			text.come(b, l, conns, func(raw net.Conn, name string) {
				s := speaks(b, raw)
				s.say(fmt.Sprintf(`{"hello":{"version":1,"clientId":%q,"heartbeatMs":600000}}`, name), 1)
				s.hear("welcome")
				s.say(`{"subscribe":{"id":1,"filter":"room/text"}}`, 1)
				s.hear("subscribed")
			})
			payloads := make([]string, inFlight)
			for i := range payloads {
				payloads[i] = fmt.Sprintf(`{"text":"%0100d","at":1795000000}`, i)
			}
			buf := make([]byte, 256<<10)
			b.ReportAllocs()
			for b.Loop() {
				for _, a := range []*audience{native, web, text} {
					mesh.Send(a.topic, payloads...)
					a.deliver(b, l, buf)
				}
			}
			each := func(a *audience) float64 {
				slices.Sort(a.rounds)
				return float64(a.rounds[len(a.rounds)/20].Nanoseconds()) / (conns * float64(inFlight))
			}
			b.ReportMetric(each(native), "native-ns/delivery")
			b.ReportMetric(each(web)/each(native), "websocket/native")
			b.ReportMetric(each(text)/each(native), "json/native")
		})
	}
}
