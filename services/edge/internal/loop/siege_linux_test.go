package loop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/wsframe"
)

// Where connections come from.
var (
	// the last is a proxy
	crowd    = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("127.0.0.1")}
	friendly = netip.MustParseAddr("198.51.100.1")
)

// siege is a loop on pairs of sockets, with turns and time in the test's hands, hostile clients,
// and one that behaves.
type siege struct {
	*rapid.T
	l         *Loop
	mesh      *upstreamtest.Mesh
	poller    *pairs
	all       []*stranger
	neighbour *stranger
	sent      int // messages to the neighbour
	got       int
}

// stranger is the other end of one connection.
type stranger struct {
	s       *siege
	fd      int
	pending []byte // to be written, in pieces
	in      []byte // read, and not a whole frame yet
	slow    bool   // reads nothing until the end
	closed  bool
	web     bool // what it sends behind its request are messages
	left    bool // has said that it sends no more, and so need not be told why it is closed
	last    wirev1.FrameType
	why     wirev1.Code // of the last Error or GoAway about the connection
}

func newSiege(t *rapid.T) *siege {
	s := &siege{T: t, poller: &pairs{watched: map[int]poll.Event{}, stuck: map[int]bool{}}}
	s.mesh = upstreamtest.New(func(e exchange.Event) { s.l.Post(e) })
	cfg := Config{
		EdgeID: "edge", Mesh: s.mesh, PolicyFor: patiently(), FrameMemory: 64 << 10,
		Limits: Limits{MaxFrame: 4 << 10, Subscriptions: 3, QueueMessages: 8, HandshakeTimeout: 15 * time.Second, FrameTimeout: 20 * time.Second},
		Door: admission.New(admission.Limits{
			Connections: 7, AddressConnections: rapid.IntRange(0, 3).Draw(t, "per address"), AddressRate: rapid.IntRange(0, 3).Draw(t, "address rate"),
			Rate: rapid.IntRange(0, 9).Draw(t, "rate"), Proxies: loopback, Exempt: []netip.Prefix{netip.PrefixFrom(friendly, 32)},
		}),
		Rates: Rates{Frames: rapid.SampledFrom([]int{0, 0, 20, 500}).Draw(t, "frames"), Bytes: rapid.SampledFrom([]int{0, 0, 1000, 1 << 20}).Draw(t, "bytes"), Patience: 40 * time.Second},
	}
	s.l = newLoop(cfg, s.poller, time.Now(), linkhealth.NewGate(1))
	s.l.sender = poll.NewWriter()
	s.l.partTime = time.Hour
	n := uint16(1)
	s.l.periodAt = func(int64) uint16 { n++; return n }
	s.neighbour = s.arrive(friendly)
	s.neighbour.pending = s.frame(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 600_000})
	s.neighbour.pending = append(s.neighbour.pending, s.frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/neighbour"})...)
	s.neighbour.push(len(s.neighbour.pending))
	s.turns()
	return s
}

func (s *siege) frame(ft wirev1.FrameType, m proto.Message) []byte {
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		s.Fatal(err)
	}
	return b
}

// turns has the loop turn until it has nothing to do, and clients read.
func (s *siege) turns() {
	for n := 0; s.l.turn() || s.poller.alarm; n++ {
		if n > 20_000 {
			s.Fatal("the loop never comes to rest")
		}
	}
	for _, u := range s.all {
		u.read()
	}
	for n := 0; s.l.turn() || s.poller.alarm; n++ {
		if n > 20_000 {
			s.Fatal("the loop never comes to rest")
		}
	}
}

func (s *siege) arrive(from netip.Addr) *stranger {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		s.Fatal(err)
	}
	u := &stranger{s: s, fd: pair[0]}
	s.all = append(s.all, u)
	s.poller.waiting = append(s.poller.waiting, arrival{pair[1], from})
	return u
}

// push writes so many bytes of what is pending; what the socket has no room for stays.
func (u *stranger) push(n int) {
	if u.closed || n == 0 {
		return
	}
	n, err := unix.SendmsgN(u.fd, u.pending[:n], nil, nil, unix.MSG_NOSIGNAL)
	if err == nil {
		u.pending = u.pending[n:]
	}
}

// read takes what has come.
func (u *stranger) read() {
	room := make([]byte, 64<<10)
	for !u.slow && !u.closed {
		n, err := unix.Read(u.fd, room)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil || n == 0 {
			u.ended(err)
			return
		}
		u.in = append(u.in, room[:n]...)
		for {
			size, ft, ok := wire.Header(u.in)
			if !ok || len(u.in) < wire.HeaderSize+size {
				break
			}
			u.take(ft, u.in[wire.HeaderSize:wire.HeaderSize+size])
			u.in = u.in[wire.HeaderSize+size:]
		}
	}
}

func (u *stranger) take(ft wirev1.FrameType, body []byte) {
	if _, known := wirev1.FrameType_name[int32(ft)]; !known || ft == 0 {
		u.s.Fatalf("a frame of type %d", ft)
	}
	u.last, u.why = ft, codeOf(ft, body)
	if u != u.s.neighbour || ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
		return
	}
	var m wirev1.Message
	if err := proto.Unmarshal(body, &m); err != nil || m.GetSeq() != uint64(u.s.got+1) || string(m.GetPayload()) != fmt.Sprint(u.s.got+1) {
		u.s.Fatalf("the neighbour got %v as number %d", &m, u.s.got+1)
	}
	u.s.got++
}

// ended is the edge's doing: it must have said why.
func (u *stranger) ended(err error) {
	if u == u.s.neighbour {
		u.s.Fatalf("the neighbour was closed for %v, %v", u.why, err)
	}
	if bytes.HasPrefix(u.in, []byte("HTTP/1.1 ")) {
		if why := unfinished(u.in); err == nil && !u.left && why != "" {
			u.s.Fatalf("closed behind %q: %s", u.in[:min(len(u.in), 40)], why)
		}
		u.close()
		return
	}
	if _, listed := wirev1.Code_name[int32(u.why)]; err == nil && !u.left && (u.last != wirev1.FrameType_FRAME_TYPE_ERROR || u.why == 0 || !listed) {
		u.s.Fatalf("closed without a word: the last frame is %v, %v", u.last, u.why)
	}
	u.close()
}

// unfinished says what of an answer of HTTP, and of the WebSocket behind it, is missing; "":
// nothing.
func unfinished(in []byte) string {
	head, rest, whole := bytes.Cut(in, []byte("\r\n\r\n"))
	switch {
	case !whole:
		return "the answer is cut off"
	case !bytes.HasPrefix(head, []byte("HTTP/1.1 101")):
		return ""
	}
	w := &webConn{in: bufio.NewReader(bytes.NewReader(rest))}
	for {
		op, p, err := w.next()
		if err != nil {
			return "there is no Close: " + err.Error()
		}
		if op == wsframe.Close {
			if w.in.Buffered() > 0 || len(p) == 1 {
				return fmt.Sprintf("Close has %d bytes, and %d follow", len(p), w.in.Buffered())
			}
			return ""
		}
	}
}

func (u *stranger) close() {
	if !u.closed {
		u.closed = true
		_ = unix.Close(u.fd)
	}
}

// says is one or more frames as a client may send them, or may not; from a WebSocket they are in
// messages, or in what may be one.
func (u *stranger) says() []byte {
	b := u.s.something()
	if !u.web {
		return b
	}
	var out []byte
	for len(b) > 0 {
		n := rapid.IntRange(0, len(b)).Draw(u.s.T, "in a message")
		first := rapid.SampledFrom([]byte{0x82, 0x82, 0x82, 0x02, 0x80, 0x00, 0x81, 0x89, 0x8a, 0x88, 0xc2}).Draw(u.s.T, "first")
		if first&8 != 0 {
			n = min(n, 125)
		}
		out = masked(out, first, b[:n])
		if b = b[n:]; n == 0 {
			return out
		}
	}
	return out
}

// something is one or more frames as a client may send them, or may not.
func (s *siege) something() (b []byte) {
	for range rapid.IntRange(1, 4).Draw(s.T, "frames") {
		f := s.valid()
		switch rapid.IntRange(0, 9).Draw(s.T, "what") {
		case 0:
			f = rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(s.T, "garbage")
		case 1: // bytes of a frame are changed
			f[rapid.IntRange(0, len(f)-1).Draw(s.T, "at")] = rapid.Byte().Draw(s.T, "byte")
		case 2: // longer than it may be, and perhaps not to its end
			long := make([]byte, wire.HeaderSize+rapid.IntRange(0, 8<<10).Draw(s.T, "sent"))
			wire.PutHeader(long, rapid.IntRange(4<<10, wire.MaxBody).Draw(s.T, "size"), wirev1.FrameType_FRAME_TYPE_PUBLISH)
			f = long
		case 3: // cut off, so that what follows is taken for its rest
			f = f[:rapid.IntRange(0, len(f)).Draw(s.T, "cut")]
		case 4: // long, and may be skipped
			long := make([]byte, wire.HeaderSize+rapid.IntRange(0, 4<<10).Draw(s.T, "size"))
			wire.PutHeader(long, len(long)-wire.HeaderSize, 0xf0)
			f = long
		}
		b = append(b, f...)
	}
	return b
}

var filters = []string{"room/1", "room/neighbour", "room/+", "room/#", "talk", "a//b", "$events/connect", "+/+/+/+/+/+/+/+/+"}

func (s *siege) valid() []byte {
	id := rapid.Uint32Range(0, 4).Draw(s.T, "id")
	name := rapid.SampledFrom(filters).Draw(s.T, "name")
	flag := rapid.Bool().Draw(s.T, "flag")
	seq := rapid.Uint64Range(0, 5).Draw(s.T, "seq")
	switch rapid.IntRange(0, 10).Draw(s.T, "kind") {
	case 0:
		return s.frame(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
	case 1:
		return s.frame(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: name, Seq: seq, Through: flag, Sub: id}}})
	case 2:
		return s.frame(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: name, Seq: seq, Sub: id})
	case 3:
		return s.frame(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: id, Topic: name, Payload: make([]byte, seq*100)})
	case 4:
		return s.frame(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: seq, LastRttUs: id})
	case 5:
		return s.frame(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: id, Resource: name})
	case 6:
		return s.frame(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: id})
	case 7:
		return s.hello()
	case 8:
		return s.frame(wirev1.FrameType(0x15+id), &wirev1.Ping{})
	}
	return s.frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{
		Id: id, Filter: name, Ack: flag, Start: wirev1.Start(seq), Overflow: wirev1.Overflow(rapid.IntRange(0, 4).Draw(s.T, "overflow")),
	})
}

func (s *siege) hello() []byte {
	m := &wirev1.Hello{Version: 1, ClientId: "ann", HeartbeatMs: rapid.SampledFrom([]uint32{5000, 600_000}).Draw(s.T, "heartbeat")}
	if rapid.Bool().Draw(s.T, "session") {
		m.Session = "s"
	}
	return s.frame(wirev1.FrameType_FRAME_TYPE_HELLO, m)
}

// newcomer is a connection with something to say first.
func (s *siege) newcomer() {
	u := s.arrive(rapid.SampledFrom(crowd).Draw(s.T, "from"))
	u.slow = rapid.IntRange(0, 3).Draw(s.T, "slow") == 0
	u.pending = []byte(rapid.SampledFrom([]string{"", "", "", proxied, proxied2, local2, "PROXY nonsense\r\n", "\x16\x03\x01", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET "}).Draw(s.T, "header"))
	if rapid.IntRange(0, 3).Draw(s.T, "web") == 0 {
		u.web = true
		u.pending = append(u.pending, request("Sec-WebSocket-Protocol: "+rapid.SampledFrom([]string{"pushmesh.v1", "pushmesh.v1", "pushmesh.v1.json", "mqtt"}).Draw(s.T, "protocol"))...)
		if rapid.Bool().Draw(s.T, "hello in a message") {
			u.pending = masked(u.pending, 0x82, s.hello())
		}
		return
	}
	if rapid.IntRange(0, 4).Draw(s.T, "hello") > 0 {
		u.pending = append(u.pending, s.hello()...)
	}
}

// besieged: whatever clients send, in whatever pieces and order, however they leave: the loop comes
// to rest, whom it closes it tells why, one that behaves is served as ever, and in the end nothing
// is left of them.
func besieged(t *rapid.T) {
	s := newSiege(t)
	defer func() {
		for _, u := range s.all {
			u.close()
		}
		for fd := range s.poller.watched {
			_ = unix.Close(fd)
		}
		for _, a := range s.poller.waiting {
			_ = unix.Close(a.fd)
		}
	}()
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		u := s.all[rapid.IntRange(0, len(s.all)-1).Draw(t, "who")]
		op := rapid.IntRange(0, 11).Draw(t, "op")
		if u == s.neighbour && op > 1 && op < 9 {
			op = 0
		}
		switch op {
		case 0, 1:
			s.newcomer()
		case 2, 3:
			u.pending = append(u.pending, u.says()...)
			u.push(len(u.pending))
		case 4:
			u.pending = append(u.pending, u.says()...)
		case 5:
			u.push(rapid.IntRange(0, len(u.pending)).Draw(t, "bytes"))
		case 6:
			u.slow = !u.slow
		case 7:
			if !u.closed {
				_ = unix.Shutdown(u.fd, unix.SHUT_WR)
				u.left = true
			}
		case 8:
			u.close()
		case 9:
			// together less than the neighbour may be silent
			passes(s.l, time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms"))*time.Millisecond)
		case 10:
			s.mesh.Hold()
		case 11:
			s.mesh.Release()
		}
		s.turns()
		s.sent++
		s.mesh.Send("room/neighbour", fmt.Sprint(s.sent))
		s.mesh.Send("room/1", "x")
		s.turns()
	}
	s.neighbourIsServed()
	s.nothingIsLeft()
}

func (s *siege) neighbourIsServed() {
	s.mesh.Release()
	s.turns()
	for n := 0; s.got < s.sent && n < 100; n++ {
		passes(s.l, 100*time.Millisecond)
		s.turns()
	}
	s.neighbour.pending = s.frame(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	s.neighbour.push(len(s.neighbour.pending))
	s.turns()
	if s.got != s.sent || s.neighbour.last != wirev1.FrameType_FRAME_TYPE_PONG {
		s.Fatalf("the neighbour got %d of %d messages, and then %v", s.got, s.sent, s.neighbour.last)
	}
}

func (s *siege) nothingIsLeft() {
	for _, u := range s.all {
		u.close()
	}
	l := s.l
	for n := 0; len(s.poller.waiting) > 0 || l.hub.Stats().Connections > 0; n++ {
		if n > 200 {
			s.Fatalf("%d connections do not end, %d do not come in", l.hub.Stats().Connections, len(s.poller.waiting))
		}
		passes(l, 500*time.Millisecond)
		s.turns()
	}
	for what, n := range l.hub.InUse() {
		if n != 0 {
			s.Fatalf("%d %s are left", n, what)
		}
	}
	if l.peers.rests.Taken() != 0 || l.peers.kept != 0 || l.turned != 0 || l.door.Held() != 0 || s.mesh.Joins != s.mesh.Leaves {
		s.Fatalf("left are %d rests of %d bytes, %d refused, %d at the door, %d joins and %d leaves",
			l.peers.rests.Taken(), l.peers.kept, l.turned, l.door.Held(), s.mesh.Joins, s.mesh.Leaves)
	}
	closes, counts := uint64(0), l.hub.Stats().Closes
	for k, n := range counts {
		if _, listed := wirev1.Code_name[int32(k)]; n > 0 && !listed {
			s.Fatalf("%d were closed for %d", n, k)
		}
		closes += n
	}
	if closes != l.stats.Accepts || closes != uint64(len(s.all)) {
		s.Fatalf("%d came, %d were accepted, %d closed", len(s.all), l.stats.Accepts, closes)
	}
}

func TestBesieged(t *testing.T) { rapid.Check(t, besieged) }

func FuzzBesieged(f *testing.F) { f.Fuzz(rapid.MakeFuzz(besieged)) }

// pairs is a poller whose sockets tests make in pairs, and which looks at all of them each time.
type pairs struct {
	waiting []arrival
	watched map[int]poll.Event
	stuck   map[int]bool
	alarm   bool
}

type arrival struct {
	fd   int
	from netip.Addr
}

func (p *pairs) Addr() netip.AddrPort { return netip.AddrPort{} }
func (p *pairs) Listen() error        { return nil }
func (p *pairs) Deafen()              {}
func (p *pairs) Tick(time.Duration) error {
	return nil
}
func (p *pairs) Wake()                      {}
func (p *pairs) Run(func() poll.Next) error { return nil }
func (p *pairs) Close() error               { return nil }
func (p *pairs) Stuck(fd int)               { p.stuck[fd] = true }

func (p *pairs) SetAlarm(int64) error {
	p.alarm = true
	return nil
}

func (p *pairs) Accept() (fd int, from netip.Addr, err error) {
	if len(p.waiting) == 0 {
		return -1, from, poll.ErrAgain
	}
	a := p.waiting[0]
	p.waiting = p.waiting[1:]
	return a.fd, a.from, nil
}

func (p *pairs) Add(fd int, slot, gen uint32) error {
	p.watched[fd] = poll.Event{Slot: slot, Gen: gen}
	return nil
}

func (p *pairs) Drop(fd int) error {
	delete(p.watched, fd)
	delete(p.stuck, fd)
	return unix.Close(fd)
}

func (p *pairs) Events(dst []poll.Event) (all []poll.Event, full bool, err error) {
	if len(p.waiting) > 0 {
		dst = append(dst, poll.Event{Slot: poll.SlotListener})
	}
	if p.alarm {
		p.alarm = false
		dst = append(dst, poll.Event{Slot: poll.SlotAlarm})
	}
	var fds []unix.PollFd
	for fd := range p.watched {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP})
	}
	if _, err := unix.Poll(fds, 0); err != nil {
		return dst, true, nil //nolint:nilerr // interrupted: the next turn asks again
	}
	// so that a failure is found again
	slices.SortFunc(fds, func(a, b unix.PollFd) int { return int(a.Fd - b.Fd) })
	for _, f := range fds {
		e, fd := p.watched[int(f.Fd)], int(f.Fd)
		e.Readable, e.HungUp, e.Broken = f.Revents&unix.POLLIN != 0, f.Revents&unix.POLLRDHUP != 0, f.Revents&(unix.POLLERR|unix.POLLHUP) != 0
		if e.Writable = p.stuck[fd] && f.Revents&unix.POLLOUT != 0; e.Writable {
			delete(p.stuck, fd)
		}
		if e.Readable || e.HungUp || e.Broken || e.Writable {
			dst = append(dst, e)
		}
	}
	return dst, false, nil
}
