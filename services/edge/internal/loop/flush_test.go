package loop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// testPoller is what the tests' loops run on: PUSHMESH_TEST_POLLER's, or the system's best.
var testPoller = PollerKind(os.Getenv("PUSHMESH_TEST_POLLER"))

// eachSender runs a test with every way to send that there is here.
func eachSender(t *testing.T, test func(t *testing.T, send SendMode)) {
	for _, send := range []SendMode{poll.ModeWrite, poll.ModeAuto} {
		t.Run(string(send), func(t *testing.T) { test(t, send) })
	}
}

func TestSendModeIsWhatWasAskedFor(t *testing.T) {
	for s, want := range map[string]SendMode{"": poll.ModeAuto, "auto": poll.ModeAuto, "uring": poll.ModeUring, "write": poll.ModeWrite} {
		if m, err := ParseSendMode(s); err != nil || m != want {
			t.Fatalf("%q is %s, %v", s, m, err)
		}
	}
	if _, err := ParseSendMode("pigeon"); err == nil {
		t.Fatal("pigeon is a way to send")
	}
	l, _ := runSending(t, Limits{}, poll.ModeWrite)
	if m, why := l.SendMode(); m != poll.ModeWrite || why != nil {
		t.Fatalf("%s, %v", m, why)
	}
	l, _ = runSending(t, Limits{}, poll.ModeAuto)
	if m, why := l.SendMode(); m != poll.ModeUring && (m != poll.ModeWrite || why == nil) {
		t.Fatalf("%s, %v", m, why)
	}
}

// byHand is a loop whose turns are the test's.
func byHand(t *testing.T, send SendMode, lim ...Limits) (*Loop, *upstreamtest.Mesh) {
	t.Helper()
	cfg := Config{Send: send}
	for _, lim := range lim {
		cfg.Limits = lim
	}
	return byHandIn(t, cfg)
}

// byHandIn is byHand with settings.
func byHandIn(t testing.TB, cfg Config) (*Loop, *upstreamtest.Mesh) {
	t.Helper()
	var l *Loop
	mesh := upstreamtest.New(func(e exchange.Event) { l.Post(e) })
	cfg.EdgeID, cfg.Mesh, cfg.PolicyFor, cfg.ListenAddr, cfg.Poller = "edge", mesh, patiently(), "127.0.0.1:0", testPoller
	cfg.Limits.HandshakeTimeout = time.Hour
	cfg.Limits = usual(cfg.Limits)
	l, err := single(cfg)
	if err != nil {
		t.Fatal(err)
	}
	turnedByHand(l)
	l.partTime = time.Hour // turns are measured by what they do
	if l.sender, l.noRing, err = openSender(cfg.Send); err != nil {
		t.Fatal(err)
	}
	if err := l.poller.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.stop.Store(true)
		l.run() // closes what is open
		_ = l.poller.Close()
	})
	return l, mesh
}

// In the midst of a broadcast, who asks is answered in the turn that reads the question.
func TestAnswersOvertakeABroadcast(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		l, mesh := byHand(t, send)
		var all []*client
		for range 2 * flushBudget {
			c := dial(t, l)
			c.write(append(frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}),
				frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})...))
			all = append(all, c)
		}
		for l.stats.Accepts < uint64(len(all)) || l.hub.Stats().Subscriptions < int64(len(all)) || l.turn() {
			l.turn()
		}
		for _, c := range all {
			c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
			c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
		}
		mesh.Send("room/1", "to all")
		l.turn()
		if len(l.flushes) == 0 {
			t.Fatal("the broadcast took one turn")
		}
		late := all[len(all)-1]
		late.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
		late.arrived(l)
		mesh.Send("room/1", "again")
		l.turn()
		if len(l.flushes) == 0 {
			t.Fatal("the broadcast took two turns")
		}
		late.message()
		late.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
		for l.turn() {
		}
		if m := late.message(); string(m.GetPayload()) != "again" {
			t.Fatalf("Message %v", m)
		}
		for _, c := range all[:len(all)-1] {
			if a, b := c.message(), c.message(); a.GetSeq() != 1 || b.GetSeq() != 2 {
				t.Fatalf("Messages %v, %v", a, b)
			}
		}
	})
}

// A connection on a busy topic does not wait, its queue growing, until all others had their turn.
func TestLongQueuesOvertakeABroadcast(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		l, mesh := byHand(t, send)
		var all []*client
		for i := range 2 * flushBudget {
			c := dial(t, l)
			c.write(append(frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}),
				frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})...))
			if i == 2*flushBudget-1 {
				c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "busy/1"})
			}
			all = append(all, c)
		}
		for l.hub.Stats().Subscriptions <= int64(len(all)) || l.turn() {
			l.turn()
		}
		late := all[len(all)-1]
		late.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
		for range 2 {
			late.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
		}
		mesh.Send("room/1", "to all")
		mesh.Send("busy/1", make([]string, 200)...)
		l.turn()
		if len(l.flushes) < flushBudget-1 {
			t.Fatalf("%d wait", len(l.flushes))
		}
		for range 201 {
			late.message()
		}
	})
}

// user reads its own topic, now fast, now slowly, and leaves now and then.
type user struct {
	name string
	l    *Loop
	r    *rand.Rand
}

// once is the life of one connection; it says how many messages came. Nothing of another user may
// be among them.
func (u *user) once(stop <-chan struct{}) (n int, err error) {
	c, err := net.Dial("tcp", u.l.Addr())
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	if err := errors.Join(c.(*net.TCPConn).SetReadBuffer(4<<10), c.SetDeadline(time.Now().Add(20*time.Second))); err != nil {
		return 0, err
	}
	hello, _ := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	hello, _ = wire.Append(hello, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: u.name})
	if _, err := c.Write(hello); err != nil {
		return 0, err
	}
	last, leave := uint64(0), 1+u.r.IntN(400)
	for {
		select {
		case <-stop:
			return n, nil
		default:
		}
		if u.r.IntN(50) == 0 {
			runtime.Gosched()
		}
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return n, err
		}
		ft, body, err := wire.Read(c, nil, wire.MaxBody)
		if err != nil {
			return n, err
		}
		if ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
			continue
		}
		var m wirev1.Message
		if err := proto.Unmarshal(body, &m); err != nil {
			return n, err
		}
		if err := u.check(&m, last); err != nil {
			return n, err
		}
		last = m.GetSeq()
		if n++; n == leave {
			return n, nil
		}
	}
}

func (u *user) check(m *wirev1.Message, last uint64) error {
	p := m.GetPayload()
	if m.GetTopic() != u.name || len(p) < 8 || !strings.HasPrefix(string(p[8:]), u.name+" ") {
		return fmt.Errorf("%s got %q of %s", u.name, p[:min(len(p), 40)], m.GetTopic())
	}
	if last != 0 && m.GetSeq() != last+1 || m.GetSeq() != binary.BigEndian.Uint64(p) {
		return fmt.Errorf("%s got seq %d after %d, and it says %d", u.name, m.GetSeq(), last, binary.BigEndian.Uint64(p))
	}
	return nil
}

// Users that come and go, some slow, get what was sent to them, whole, in order and nothing else.
func TestNobodyGetsBytesOfAnother(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		const users, perUser = 60, 800
		l, mesh := runSending(t, Limits{QueueBytes: 64 << 10}, send)
		var wg sync.WaitGroup
		var got atomic.Int64
		stop := make(chan struct{})
		for i := range users {
			u := &user{name: fmt.Sprintf("user/%d", i), l: l, r: rand.New(rand.NewPCG(uint64(i), 1))}
			wg.Go(func() {
				for {
					n, err := u.once(stop)
					got.Add(int64(n))
					select {
					case <-stop:
						return
					default:
					}
					if err != nil && !errors.Is(err, io.EOF) {
						t.Error(err)
						return
					}
				}
			})
		}
		eventually(t, "all are there", func() bool { return l.Stats().Subscriptions == users })
		r := rand.New(rand.NewPCG(3, 4))
		for seq := range uint64(perUser) {
			for i := range users {
				name := fmt.Sprintf("user/%d", i)
				payload := string(binary.BigEndian.AppendUint64(nil, seq+1)) + name + " " + strings.Repeat(name, r.IntN(100))
				mesh.Send(name, payload)
			}
		}
		eventually(t, "most have come", func() bool { return got.Load() > users*perUser/20 })
		close(stop)
		for i := range users {
			mesh.Send(fmt.Sprintf("user/%d", i), string(binary.BigEndian.AppendUint64(nil, perUser+1))+fmt.Sprintf("user/%d end", i))
		}
		wg.Wait()
		eventually(t, "all are gone, and nothing is queued", func() bool {
			s := l.Stats()
			return s.Connections == 0 && s.QueuedBytes == 0
		})
	})
}
