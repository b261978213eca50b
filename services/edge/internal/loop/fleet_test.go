package loop

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// everyone is a topic that all users have; each has one of its own too, and every payload of all is
// different in every place.
const everyone = "room/all"

// fleet is a loop whose turns are the test's, and users on real sockets.
type fleet struct {
	*rapid.T
	l      *Loop
	mesh   *upstreamtest.Mesh
	users  []*guest
	came   int                 // users so far
	sent   map[string][]string // payloads by topic, in the order of seqs
	frames []weak.Pointer[byte]
	room   []byte // what was read
}

func newFleet(t *rapid.T, sender func() (poll.Sender, error)) *fleet {
	f := &fleet{T: t, sent: map[string][]string{}, room: make([]byte, 100_000)}
	f.mesh = upstreamtest.New(func(e exchange.Event) { f.l.Post(e) })
	// Queues are short, so that messages are dropped out of their middle, and connections read on
	// from the log.
	lim := Limits{QueueMessages: 12, QueueBytes: 128 << 10, ReadBytes: 64 << 10, HandshakeTimeout: time.Hour}
	l, err := single(Config{EdgeID: "edge", Mesh: f.mesh, PolicyFor: patiently(), ListenAddr: "127.0.0.1:0", Poller: testPoller, Limits: usual(lim)})
	if err != nil {
		t.Fatal(err)
	}
	f.l = l
	if l.sender, err = sender(); err != nil {
		t.Fatal(err)
	}
	if err := l.poller.Listen(); err != nil {
		t.Fatal(err)
	}
	return f
}

// guest is one connection, and what it must be sent next. Sockets' buffers are small, so that the
// edge's writes are partial.
type guest struct {
	f    *fleet
	n    int
	fd   int
	ack  bool
	have []byte
	next map[string]uint64
	acks []byte // to be sent
	// Pings that were sent, and that were answered.
	pings, pongs uint64
}

func (u *guest) own() string { return fmt.Sprintf("user/%d/inbox", u.n) }

// arrive connects a user: plain, with ACKs, or with ACKs from the beginning of the log, which gets
// frames with fields of its own.
func (f *fleet) arrive() {
	at := f.l.poller.Addr().Addr().As4()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8192),
			// Segments that fit into such a window: others wait for a timer of the kernel's.
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1000),
			unix.Connect(fd, &unix.SockaddrInet4{Addr: at, Port: int(f.l.poller.Addr().Port())}),
			unix.SetNonblock(fd, true),
		)
	}
	if err != nil {
		f.Fatal(err)
	}
	f.came++
	u := &guest{f: f, n: f.came, fd: fd, next: map[string]uint64{}}
	f.users = append(f.users, u)
	start := wirev1.Start_START_LIVE
	if u.ack = u.n%3 > 0; u.n%3 == 2 {
		start = wirev1.Start_START_EARLIEST
		u.next[everyone], u.next[u.own()] = 1, 1
	}
	b := f.frame(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ReceiveWindow: 16})
	for i, name := range []string{everyone, u.own()} {
		b = append(b, f.frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: name, Ack: u.ack, Start: start})...)
	}
	accepts := f.l.stats.Accepts
	u.write(b)
	for f.l.stats.Accepts == accepts {
		f.l.turn()
	}
	for slot := range f.l.peers.len() { // the edge's buffers too
		if p := f.l.peers.get(slot); p.fd >= 0 {
			_ = unix.SetsockoptInt(int(p.fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 8192)
		}
	}
}

func (f *fleet) frame(t wirev1.FrameType, m proto.Message) []byte {
	b, err := wire.Append(nil, t, m)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

func (u *guest) write(b []byte) {
	if n, err := unix.Write(u.fd, b); err != nil || n < len(b) {
		u.f.Fatalf("user %d wrote %d of %d bytes: %v", u.n, n, len(b), err)
	}
}

// publish sends n messages to a topic in one batch.
func (f *fleet) publish(topic string, n, size int) {
	var payloads []string
	for range n {
		payloads = append(payloads, payload(topic, len(f.sent[topic])+1, size))
		f.sent[topic] = append(f.sent[topic], payloads[len(payloads)-1])
	}
	for _, m := range f.mesh.Send(topic, payloads...) {
		f.frames = append(f.frames, weak.Make(&m.Frame[0]))
	}
}

// payload is different from every other one in nearly every byte.
func payload(topic string, seq, size int) string {
	b := []byte(fmt.Sprintf("%s %d ", topic, seq))
	x := uint64(seq)
	for _, c := range b {
		x = (x ^ uint64(c)) * 0x100000001b3
	}
	for len(b) < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = append(b, byte(x))
	}
	return string(b)
}

// read takes at most so many bytes that have come, and looks at the frames they complete. False
// once there are none.
func (u *guest) read(most int) bool {
	n, err := unix.Read(u.fd, u.f.room[:most])
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if err != nil || n == 0 {
		u.f.Fatalf("user %d was cut off: %v", u.n, err)
	}
	u.have = append(u.have, u.f.room[:n]...)
	for {
		size, t, ok := wire.Header(u.have)
		if !ok || len(u.have) < wire.HeaderSize+size {
			return true
		}
		u.take(t, u.have[wire.HeaderSize:wire.HeaderSize+size])
		u.have = u.have[wire.HeaderSize+size:]
	}
}

func (u *guest) take(t wirev1.FrameType, body []byte) {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_WELCOME:
	case wirev1.FrameType_FRAME_TYPE_PONG:
		var m wirev1.Pong
		if err := proto.Unmarshal(body, &m); err != nil || m.GetSentAt() != u.stamp(u.pongs) {
			u.f.Fatalf("user %d got Pong %x as number %d: %v", u.n, m.GetSentAt(), u.pongs, err)
		}
		u.pongs++
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
		var m wirev1.Subscribed
		if err := proto.Unmarshal(body, &m); err != nil {
			u.f.Fatal(err)
		}
		name := []string{everyone, u.own()}[m.GetId()-1]
		if u.next[name] == 0 {
			u.next[name] = m.GetHead() + 1
		}
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		u.message(body)
	default:
		u.f.Fatalf("user %d got %v %q", u.n, t, body[:min(len(body), 100)])
	}
}

// message must be the next one of its topic, byte for byte.
func (u *guest) message(body []byte) {
	var m wirev1.Message
	if err := proto.Unmarshal(body, &m); err != nil {
		u.f.Fatalf("user %d got a Message that can't be decoded: %v", u.n, err)
	}
	name := m.GetTopic()
	if name != everyone && name != u.own() {
		u.f.Fatalf("user %d got a message of %q", u.n, name)
	}
	if m.GetSeq() != u.next[name] {
		u.f.Fatalf("user %d got %s %d, want %d", u.n, name, m.GetSeq(), u.next[name])
	}
	if want := u.f.sent[name][m.GetSeq()-1]; string(m.GetPayload()) != want {
		u.f.Fatalf("user %d got other bytes as %s %d: %q", u.n, name, m.GetSeq(), m.GetPayload()[:min(len(m.GetPayload()), 40)])
	}
	u.next[name]++
	if u.ack {
		u.acks = append(u.acks, u.f.frame(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: name, Seq: m.GetSeq(), Through: true}}})...)
	}
}

// ping sends n Pings, each with a stamp that no other has.
func (u *guest) ping(n int) {
	var b []byte
	for range n {
		b = append(b, u.f.frame(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: u.stamp(u.pings)})...)
		u.pings++
	}
	u.write(b)
}

func (u *guest) stamp(i uint64) uint64 { return uint64(u.n)<<32 | i }

func (u *guest) sendAcks() {
	u.write(u.acks)
	u.acks = nil
}

// leave closes the socket, with a reset or in order.
func (f *fleet) leave(i int, reset bool) {
	u := f.users[i]
	f.users = append(f.users[:i], f.users[i+1:]...)
	if reset {
		_ = unix.SetsockoptLinger(u.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err := unix.Close(u.fd); err != nil {
		f.Fatal(err)
	}
}

// finish has everyone who is still there read all that was published.
func (f *fleet) finish() {
	f.until("everyone has everything", func() bool {
		all := true
		for _, u := range f.users {
			for u.read(len(f.room)) {
			}
			u.sendAcks()
			all = all && u.next[everyone] == uint64(len(f.sent[everyone])+1) && u.next[u.own()] == uint64(len(f.sent[u.own()])+1) && u.pongs == u.pings
		}
		return all
	})
}

// close ends everything, and looks for what is left.
func (f *fleet) close() {
	for len(f.users) > 0 {
		f.leave(0, true)
	}
	f.until("all connections have ended", func() bool { return f.l.hub.Stats().Connections == 0 })
	for f.l.turn() {
	}
	for what, n := range f.l.hub.InUse() {
		if n != 0 {
			f.Fatalf("%d %s are left", n, what)
		}
	}
	if n := f.l.peers.rests.Taken(); n != 0 {
		f.Fatalf("what was read of %d connections is left", n)
	}
	f.mesh.Forget()
	runtime.GC()
	for i, p := range f.frames {
		if p.Value() != nil {
			f.Fatalf("something still refers to frame %d of %d", i, len(f.frames))
		}
	}
	runtime.KeepAlive(f.l)
}

func (f *fleet) until(what string, ok func() bool) {
	for deadline := time.Now().Add(patience); !ok(); {
		if f.l.turn(); time.Now().After(deadline) {
			f.Fatalf("never: %s", what)
		}
	}
}

// end closes what the loop and users have open, whatever became of the test.
func (f *fleet) end() {
	for _, u := range f.users {
		_ = unix.Close(u.fd)
	}
	f.l.stop.Store(true)
	f.l.run()
	_ = f.l.poller.Close()
}

// Distinct payloads for each user, users that are killed in the middle of a frame, that read slowly
// or not at all, writes that are partial, and sends that the kernel completes late and out of
// order: no byte of another frame reaches anyone, nobody who stays misses a message, and once all
// are gone no reference to a frame or to the hub's memory is left. Builds that scribble over what
// is freed (-race, -tags scribble) show the rest.
func TestNoByteOfARecycledFrameReachesAClient(t *testing.T) {
	senders := map[string]func(t *rapid.T) func() (poll.Sender, error){
		"write": func(*rapid.T) func() (poll.Sender, error) {
			return func() (poll.Sender, error) { return poll.NewWriter(), nil }
		},
		"auto": func(*rapid.T) func() (poll.Sender, error) {
			return func() (poll.Sender, error) { s, _, err := openSender(poll.ModeAuto); return s, err }
		},
		"late": func(t *rapid.T) func() (poll.Sender, error) {
			return func() (poll.Sender, error) { return newLateSender(rapid.Uint64().Draw(t, "schedule")), nil }
		},
	}
	for name, sender := range senders {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				f := newFleet(t, sender(t))
				defer f.end()
				for range rapid.IntRange(1, 20).Draw(t, "steps") {
					f.step()
				}
				f.finish()
				f.close()
			})
		})
	}
}

// step is something that users, publishers or the loop do.
func (f *fleet) step() {
	sizes := rapid.SampledFrom([]int{0, 100, 3000, 30_000})
	if len(f.users) == 0 {
		f.arrive()
	}
	at := rapid.IntRange(0, len(f.users)-1).Draw(f.T, "user")
	u := f.users[at]
	switch rapid.IntRange(0, 9).Draw(f.T, "what") {
	case 0, 1:
		// More than io_uring's sender sends one by one.
		for range rapid.SampledFrom([]int{1, 2, 10}).Draw(f.T, "arrive") {
			if len(f.users) < 16 {
				f.arrive()
			}
		}
	case 2:
		f.publish(u.own(), rapid.IntRange(1, 6).Draw(f.T, "messages"), sizes.Draw(f.T, "size"))
	case 3, 4:
		f.publish(everyone, rapid.IntRange(1, 6).Draw(f.T, "messages"), sizes.Draw(f.T, "size"))
	case 5:
		f.leave(at, rapid.Bool().Draw(f.T, "reset"))
	case 6:
		if rapid.Bool().Draw(f.T, "stuck") { // answers wait behind what its socket does not take
			f.publish(u.own(), 2, 30_000)
			f.l.turn()
			f.l.turn()
		}
		u.ping(rapid.SampledFrom([]int{1, 20, 1000}).Draw(f.T, "pings"))
	case 7:
		u.sendAcks()
	default:
		u.read(rapid.SampledFrom([]int{1, 7, 1000, 100_000}).Draw(f.T, "bytes"))
	}
	for range rapid.IntRange(0, 3).Draw(f.T, "turns") {
		f.l.turn()
	}
}
