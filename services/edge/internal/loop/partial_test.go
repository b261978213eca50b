package loop

import (
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
)

// Over a real socket: a frame that drips in is closed, and so is a Hello.
func TestFramesThatDripInAreClosed(t *testing.T) {
	l, _ := run(t, Limits{HandshakeTimeout: 300 * time.Millisecond, FrameTimeout: 300 * time.Millisecond})
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	for _, x := range []struct {
		name  string
		whole []byte
		torn  []byte
		want  wirev1.Code
	}{
		{"Hello", nil, hello[:len(hello)-1], wirev1.Code_CODE_HANDSHAKE_TIMEOUT},
		{"first byte", nil, hello[:1], wirev1.Code_CODE_HANDSHAKE_TIMEOUT},
		{"nothing", nil, nil, wirev1.Code_CODE_HANDSHAKE_TIMEOUT},
		{"frame", hello, []byte{0, 0, 9}, wirev1.Code_CODE_IDLE_TIMEOUT},
		{"body", hello, []byte{0, 0, 9, 10, 9}, wirev1.Code_CODE_IDLE_TIMEOUT},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := l.Stats().Closes[x.want]
			c := dial(t, l)
			if x.whole != nil {
				c.write(append(x.whole, x.torn...))
				if ft, _, err := c.frame(); ft == wirev1.FrameType_FRAME_TYPE_ERROR || err != nil {
					return // the machine stood still for longer than Hello has
				}
			} else if x.torn != nil {
				c.write(x.torn)
			}
			if e, whole := c.refusal(); whole && e.GetCode() != x.want {
				t.Fatalf("got %v, want %v", e, x.want)
			}
			eventually(t, "counted", func() bool { return l.Stats().Closes[x.want] > before })
		})
	}
}

// However many connections begin frames, what is kept of these is bounded: who has sent much is
// closed, who has sent little is not.
func TestPartsOfFramesAreBounded(t *testing.T) {
	l, _ := byHand(t, poll.ModeWrite)
	const most, size = 160 << 10, 90 << 10
	l.cfg.FrameMemory = most
	all := subscribed(t, l, 3)
	part := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(part, size+1, wirev1.FrameType_FRAME_TYPE_PUBLISH)
	send := func(c *client, b []byte) {
		frames, read := l.stats.Reads, l.stats.ReadBytes
		c.write(b)
		turnUntil(t, l, "it was read", func() bool { return l.stats.Reads > frames && l.stats.ReadBytes-read == uint64(len(b)) && !l.turn() })
	}
	send(all[0], part[:10])
	send(all[1], part)
	if l.peers.kept < size || l.hub.Stats().Connections != 3 {
		t.Fatalf("%d bytes are kept of %d connections", l.peers.kept, l.hub.Stats().Connections)
	}
	all[2].write(part)
	turnUntil(t, l, "the third is closed", func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_OVERLOADED] == 1 })
	if l.peers.kept > most+smallRest {
		t.Fatalf("%d bytes are kept", l.peers.kept)
	}
	for _, c := range all {
		_ = c.Close()
	}
	turnUntil(t, l, "all have gone", func() bool { return l.hub.Stats().Connections == 0 })
	if l.peers.kept != 0 || l.peers.rests.Taken() != 0 {
		t.Fatalf("%d bytes in %d rests are left", l.peers.kept, l.peers.rests.Taken())
	}
}

// The connections of one address may have a quarter of the memory for parts of frames: beyond it
// who has sent much is closed, and connections of other addresses, and those that have sent little,
// are not. What is kept for it is given back as frames come whole, and as connections end.
func TestPartsOfAnAddressAreBounded(t *testing.T) {
	const most, size = 1 << 20, 90 << 10
	l, _ := byHand(t, poll.ModeWrite)
	l.cfg.FrameMemory, l.cfg.Limits.MaxFrame = most, size
	all := subscribed(t, l, 5)
	other := dialFrom(t, l, "127.0.0.2")
	other.write(frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}))
	turnUntil(t, l, "the other one is welcomed", func() bool { return l.hub.Stats().Connections == 6 && !l.turn() })
	part := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(part, size+1, wirev1.FrameType_FRAME_TYPE_PUBLISH)
	refused := func() uint64 { return l.hub.Stats().Closes[wirev1.Code_CODE_OVERLOADED] }
	send := func(c *client, b []byte) {
		read, before := l.stats.ReadBytes, refused()
		c.write(b)
		turnUntil(t, l, "it was read", func() bool {
			return (l.stats.ReadBytes-read == uint64(len(b)) || refused() > before) && !l.turn()
		})
	}
	n := 0
	for ; n < 4 && refused() == 0; n++ {
		send(all[n], part)
	}
	if n < 2 || refused() != 1 || l.peers.kept > most/addressParts {
		t.Fatalf("%d have sent a part, %d are refused, %d bytes are kept", n, refused(), l.peers.kept)
	}
	send(all[4], part[:10])
	send(other, part)
	if refused() != 1 {
		t.Fatal("one of another address, or with little, is refused")
	}
	send(all[0], make([]byte, 1)) // its frame is whole: it can't be decoded
	for _, c := range append(all, other) {
		_ = c.Close()
	}
	turnUntil(t, l, "all have gone", func() bool { return l.hub.Stats().Connections == 0 })
	if len(l.peers.large.bySlot) != 0 || len(l.peers.large.byAddress) != 0 || l.peers.kept != 0 {
		t.Fatalf("%d bytes are left, of %v", l.peers.kept, l.peers.large)
	}
}

// A connection that its client's address is exempt of limits for counts for no address.
func TestPartsOfExemptAddressesAreNotCounted(t *testing.T) {
	const most, size = 1 << 20, 90 << 10
	l, _ := byHandBehind(t, admission.Limits{Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	l.cfg.FrameMemory, l.cfg.Limits.MaxFrame = most, size
	part := make([]byte, wire.HeaderSize+size)
	wire.PutHeader(part, size+1, wirev1.FrameType_FRAME_TYPE_PUBLISH)
	for i, c := range subscribed(t, l, 5) {
		read := l.stats.ReadBytes
		c.write(part)
		turnUntil(t, l, "it was read", func() bool { return l.stats.ReadBytes-read == uint64(len(part)) && !l.turn() })
		if n := l.hub.Stats().Closes[wirev1.Code_CODE_OVERLOADED]; n != 0 {
			t.Fatalf("number %d is refused", i)
		}
	}
}

// What is counted of large parts is what there is of them, whatever comes and goes.
func TestLargePartsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s largeParts
		address := func(slot uint32) string { return []string{"", "192.0.2.1", "192.0.2.2"}[slot%3] }
		has := map[uint32]int{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			slot := rapid.Uint32Range(0, 8).Draw(t, "slot")
			if n := rapid.IntRange(0, 1<<20).Draw(t, "bytes"); n > 1<<19 {
				has[slot] = n
				all := 0
				for other, n := range has {
					if address(slot) != "" && address(other) == address(slot) {
						all += n
					}
				}
				if got := s.set(slot, n, address); got != all {
					t.Fatalf("%q has %d, and %d are counted", address(slot), all, got)
				}
			} else {
				delete(has, slot)
				s.drop(slot)
			}
		}
		for slot := range has {
			s.drop(slot)
		}
		if len(s.bySlot) != 0 || len(s.byAddress) != 0 {
			t.Fatalf("%v is left", s)
		}
	})
}

// caught keeps what is written from its client when it is told to, instead of sending it.
type caught struct {
	net.Conn
	on    bool
	bytes []byte
}

func (c *caught) Write(b []byte) (int, error) {
	if !c.on {
		return c.Conn.Write(b)
	}
	c.bytes = append(c.bytes, b...)
	return len(b), nil
}

// half has a client with TLS, which has said Hello, send all of a frame's records but the last so
// many bytes.
func (g *guarded) half(frame []byte, missing int) (c *client, rest []byte) {
	g.Helper()
	raw := &caught{Conn: dial(g, g.Loop).Conn}
	c, err := g.over(raw, g.client())
	if err != nil {
		g.Fatal(err)
	}
	c.hello(&wirev1.Hello{})
	raw.on = true
	c.write(frame)
	raw.on = false
	n := len(raw.bytes) - missing
	if _, err := raw.Write(raw.bytes[:n]); err != nil {
		g.Fatal(err)
	}
	return c, raw.bytes[n:]
}

// Over real sockets: a TLS record that drips in is closed as a frame is, whatever of it is missing.
func TestRecordsThatDripInAreClosed(t *testing.T) {
	ping := frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	big := frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "open/x", Payload: make([]byte, 40<<10)})
	for name, x := range map[string]struct {
		frame   []byte
		missing int
	}{
		"its last byte":                {ping, 1},
		"more than its header":         {ping, 17},
		"the last record of its frame": {big, 1},
		"a record in the middle":       {big, 20 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, handshake.Config{}, Config{Limits: Limits{FrameTimeout: 300 * time.Millisecond, HandshakeTimeout: time.Hour}})
			c, _ := g.half(x.frame, x.missing)
			if e, whole := c.refusal(); whole && e.GetCode() != wirev1.Code_CODE_IDLE_TIMEOUT {
				t.Fatalf("got %v", e)
			}
			_ = c.Close()
			g.closed(wirev1.Code_CODE_IDLE_TIMEOUT, 1)
			eventually(t, "no part is left", func() bool { return g.Stats().FrameMemory == 0 })
		})
	}
}

// Parts of records are in the memory of parts of frames: who has sent much is closed, who has sent
// little is served on.
func TestPartsOfRecordsAreBounded(t *testing.T) {
	const most = 160 << 10
	g := guard(t, handshake.Config{}, Config{FrameMemory: most})
	ping := frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	big := frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "open/x", Payload: make([]byte, 100<<10)})
	little, rest := g.half(ping, 1)
	_, _ = g.half(big, 1)
	eventually(t, "the parts are counted", func() bool { return g.Stats().FrameMemory > 100<<10 })
	much, _ := g.half(big, 1)
	if e, whole := much.refusal(); whole && e.GetCode() != wirev1.Code_CODE_OVERLOADED {
		t.Fatalf("got %v", e)
	}
	eventually(t, "it is counted", func() bool { return g.Stats().Closes[wirev1.Code_CODE_OVERLOADED] == 1 })
	eventually(t, "its part is dropped", func() bool { m := g.Stats().FrameMemory; return m > 100<<10 && m < most })
	if _, err := little.Conn.(*tls.Conn).NetConn().Write(rest); err != nil {
		t.Fatal(err)
	}
	little.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
}
