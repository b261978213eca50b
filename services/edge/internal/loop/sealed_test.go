package loop

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// torn writes in pieces of up to so many bytes.
type torn struct {
	net.Conn
	most int
}

func (c torn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.Conn.Write(b[n:min(n+1+rand.IntN(c.most), len(b))])
		n += m
	}
	return n, err
}

func TestTornRecords(t *testing.T) {
	for name, most := range map[string]int{"byte by byte": 1, "in pieces": 3000} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{})
			c, err := g.over(torn{dial(t, g.Loop).Conn, most}, g.client())
			if err != nil {
				t.Fatal(err)
			}
			c.hello(&wirev1.Hello{})
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/#"})
			size := 80 * most
			c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "open/x", Payload: make([]byte, size)})
			if m := c.message(); len(m.GetPayload()) != size {
				t.Fatalf("%d bytes", len(m.GetPayload()))
			}
		})
	}
}

// TestRecordsBehindHelloWaitForTheSession has what a client sends at once, in records of their own,
// wait until its session is there, in order.
func TestRecordsBehindHelloWaitForTheSession(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	g.mesh.Hold()
	c := g.dial(g.client())
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "s"})
	const pings = 1000 // more than a turn takes
	for i := range pings {
		c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: uint64(i)})
	}
	eventually(t, "Hello was read", func() bool { return g.Stats().Frames == 1 })
	g.mesh.Release()
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	for i := range pings {
		var p wirev1.Pong
		if c.read(wirev1.FrameType_FRAME_TYPE_PONG, &p); p.GetSentAt() != uint64(i) {
			t.Fatalf("Pong %d, want %d", p.GetSentAt(), i)
		}
	}
}

func TestSlowReaderOverTLS(t *testing.T) { eachSender(t, slowReaderOverTLS) }

func slowReaderOverTLS(t *testing.T, send SendMode) {
	g := guard(t, handshake.Config{}, Config{Send: send, Limits: Limits{QueueBytes: 64 << 10}})
	slow, fast := g.dial(g.client()), g.dial(g.client())
	for _, c := range []*client{slow, fast} {
		c.hello(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	}
	const n, size = 1000, 16 << 10 // 16 MB: more than kernel buffers hold
	go func() {
		for i := range n {
			g.mesh.Send("room/1", string(bytes.Repeat([]byte{byte(i)}, size)))
		}
	}()
	for i := range n {
		if m := fast.message(); m.GetSeq() != uint64(i+1) {
			t.Fatalf("fast got %d, want %d", m.GetSeq(), i+1)
		}
	}
	eventually(t, "the slow one fell behind", func() bool { return g.Stats().Behind > 0 })
	if q := g.Stats().QueuedBytes; q > 2*(64<<10)+sealRoom {
		t.Fatalf("%d bytes queued", q)
	}
	for i := range n {
		if m := slow.message(); m.GetSeq() != uint64(i+1) || len(m.GetPayload()) != size || m.GetPayload()[0] != byte(i) {
			t.Fatalf("slow got %d, want %d", m.GetSeq(), i+1)
		}
	}
	_, _ = slow.Close(), fast.Close()
	g.closed(wirev1.Code_CODE_OK, 2)
}

// TestCiphertextIsBounded has a client that reads nothing be owed ciphertext: what it is owed stays
// bounded, and all of it is counted off in the end.
func TestCiphertextIsBounded(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{Limits: Limits{QueueBytes: 64 << 10, QueueMessages: 4}})
	c := g.dial(g.client())
	c.hello(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "tick/1"})
	big := string(make([]byte, 32<<10))
	eventually(t, "its socket is full, and so is its queue", func() bool {
		for range 100 {
			g.mesh.Live(upstreamtest.Run("tick/1", 0, 0, big)[0])
		}
		s := g.Stats()
		return s.Drops[wirev1.Code_CODE_QUEUE_FULL] > 0 && s.QueuedBytes >= 32<<10
	})
	if s := g.Stats(); s.QueuedBytes > 2*(64<<10)+sealRoom {
		t.Fatalf("%d bytes are owed", s.QueuedBytes)
	}
	_ = c.Close()
	g.closed(wirev1.Code_CODE_OK, 1)
}

// TestManyAreSealedInTurns owes many connections more than one flush seals.
func TestManyAreSealedInTurns(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	const clients, messages, size = 20, 8, 60 << 10
	all := make([]*client, clients)
	for i := range all {
		all[i] = g.dial(g.client())
		all[i].hello(&wirev1.Hello{})
		all[i].subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	}
	g.mesh.Send("room/1", slicesOf(messages, size)...)
	for _, c := range all {
		for i := range messages {
			if m := c.message(); m.GetSeq() != uint64(i+1) || len(m.GetPayload()) != size || m.GetPayload()[size-1] != byte(i) {
				t.Fatalf("got %d, %d bytes", m.GetSeq(), len(m.GetPayload()))
			}
		}
	}
}

// TestSealedIsWhatPlainWouldBe has neighbours with and without TLS get the same messages, of sizes
// and in runs that chance makes, and compares each byte of theirs.
func TestSealedIsWhatPlainWouldBe(t *testing.T) {
	for name, v := range versions {
		t.Run(name, func(t *testing.T) { eachSender(t, func(t *testing.T, send SendMode) { sealedIsPlain(t, send, v) }) })
	}
}

func sealedIsPlain(t *testing.T, send SendMode, version uint16) {
	g := guard(t, handshake.Config{}, Config{Send: send})
	cfg := g.client()
	cfg.MaxVersion = version
	all := []*client{dial(t, g.Loop), g.dial(cfg), g.dial(cfg)}
	for _, c := range all {
		c.hello(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+"})
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- of a test
	for round := range 30 {
		want, n := map[string][]string{}, 0
		for range 1 + r.IntN(3) {
			topic := "room/" + string('a'+rune(r.IntN(3)))
			payloads := make([]string, 1+r.IntN(20))
			for i := range payloads {
				b := make([]byte, r.IntN(1<<r.IntN(17)))
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				payloads[i] = string(b)
			}
			g.mesh.Send(topic, payloads...)
			want[topic], n = append(want[topic], payloads...), n+len(payloads)
		}
		bodies := make([][]byte, n) // as the first one got them
		for i, c := range all {
			for k := range n {
				kind, body, err := c.frame()
				switch {
				case err != nil || kind != wirev1.FrameType_FRAME_TYPE_MESSAGE:
					t.Fatalf("seed %d, round %d: client %d got a %v, %v", seed, round, i, kind, err)
				case i > 0 && !bytes.Equal(body, bodies[k]):
					t.Fatalf("seed %d, round %d: message %d of client %d is not what the one without TLS got", seed, round, k, i)
				case i > 0:
					continue
				}
				bodies[k] = body
				var m wirev1.Message
				if err := proto.Unmarshal(body, &m); err != nil || len(want[m.GetTopic()]) == 0 || want[m.GetTopic()][0] != string(m.GetPayload()) {
					t.Fatalf("seed %d, round %d: message %d is not what was sent, %v", seed, round, k, err)
				}
				want[m.GetTopic()] = want[m.GetTopic()][1:]
			}
		}
	}
}

func slicesOf(n, size int) (all []string) {
	for i := range n {
		all = append(all, string(bytes.Repeat([]byte{byte(i)}, size)))
	}
	return all
}

func TestGarbageAmongRecords(t *testing.T) {
	for name, b := range map[string][]byte{
		"a record that is not sealed":    append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...),
		"a record of 65,535 bytes":       append([]byte{23, 3, 3, 255, 255}, make([]byte, 100)...),
		"frames as they are without TLS": {0, 0, 0, 0x0a, 0, 0, 0, 0x0a},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{})
			raw := dial(t, g.Loop)
			c, err := g.over(raw.Conn, g.client())
			if err != nil {
				t.Fatal(err)
			}
			c.hello(&wirev1.Hello{})
			raw.write(b)
			if _, err := io.Copy(io.Discard, c); err == nil {
				t.Fatal("the client is not told")
			}
			_ = raw.Close()
			g.closed(wirev1.Code_CODE_BAD_FRAME, 1)
		})
	}
}

func TestDrainOverTLS(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	c := g.dial(g.client())
	c.hello(&wirev1.Hello{})
	g.drain()
	var away wirev1.GoAway
	c.read(wirev1.FrameType_FRAME_TYPE_GO_AWAY, &away)
	if _, _, err := wire.Read(c, nil, wire.MaxBody); err != io.EOF { //nolint:errorlint // as crypto/tls says after a close_notify
		t.Fatalf("got %v, want a close_notify", err)
	}
	_ = c.Close()
	g.closed(wirev1.Code_CODE_DRAINING, 1)
}

func TestClosedWithoutCloseNotify(t *testing.T) {
	g := guard(t, handshake.Config{}, Config{})
	raw := dial(t, g.Loop)
	c, err := g.over(raw.Conn, g.client())
	if err != nil {
		t.Fatal(err)
	}
	c.hello(&wirev1.Hello{})
	_ = raw.Close()
	g.closed(wirev1.Code_CODE_OK, 1)
	d := g.dial(g.client())
	d.hello(&wirev1.Hello{})
	if err := d.Conn.(*tls.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = d.SetReadDeadline(time.Now().Add(patience))
	_, _ = io.Copy(io.Discard, d)
	g.closed(wirev1.Code_CODE_OK, 2)
}
