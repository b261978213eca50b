package loop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// run starts a loop on a mesh in memory.
func run(t testing.TB, lim Limits) (*Loop, *upstreamtest.Mesh) {
	t.Helper()
	return runSending(t, lim, poll.ModeAuto)
}

// single is the only loop of an edge.
func single(cfg Config) (*Loop, error) {
	all, err := NewAll(cfg, 1)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func runSending(t testing.TB, lim Limits, send SendMode) (*Loop, *upstreamtest.Mesh) {
	t.Helper()
	var l *Loop
	mesh := upstreamtest.New(func(e exchange.Event) {
		if !l.Post(e) {
			if live, ok := e.(exchange.Live); !ok {
				t.Errorf("the mailbox refused %T of %d", e, len(live.Messages))
			}
		}
	})
	table := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}}})
	l, err := single(Config{EdgeID: "edge", Mesh: mesh, PolicyFor: table.For, Limits: usual(lim), ListenAddr: "127.0.0.1:0", Poller: testPoller, Send: send})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l, mesh
}

func TestHelloSubscribeMessageAck(t *testing.T) { eachSender(t, helloSubscribeMessageAck) }

func helloSubscribeMessageAck(t *testing.T, send SendMode) {
	l, mesh := runSending(t, Limits{}, send)
	c := dial(t, l)
	w := c.hello(&wirev1.Hello{ClientId: "ann"})
	if w.GetEdge() != "edge" || w.GetClientId() != "ann" || w.GetConnectionId() == 0 || w.GetHeartbeatMs() != 30_000 || w.GetMaxFrame() != 1<<20 {
		t.Fatalf("Welcome %v", w)
	}
	mesh.Append("room/1", "old")
	if s := c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true}); s.GetHead() != 1 || !s.GetRecovered() {
		t.Fatalf("Subscribed %v", s)
	}
	mesh.Send("room/1", "hi")
	if m := c.message(); m.GetSeq() != 2 || string(m.GetPayload()) != "hi" || m.GetTopic() != "room/1" {
		t.Fatalf("Message %v", m)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 2}}})
	eventually(t, "ACKed", func() bool { s := l.Stats(); return s.Acks == 1 && s.Unacked == 0 })
	_ = c.Close()
	eventually(t, "closed", func() bool { return l.Stats().Connections == 0 })
	if n := l.Stats().Closes[wirev1.Code_CODE_OK]; n != 1 {
		t.Fatalf("closed by the client: %d", n)
	}
}

func TestNonsense(t *testing.T) {
	l, _ := run(t, Limits{})
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	sub := func(filter string) []byte {
		return frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: filter})
	}
	big := append([]byte{0x20, 0, 0, byte(wirev1.FrameType_FRAME_TYPE_PUBLISH)}, make([]byte, 2<<20)...)
	for _, x := range []struct {
		name  string
		first []byte // sent before Welcome is read
		then  []byte
		want  wirev1.Code
	}{
		{"garbage", []byte("\xde\xad\xbe\xef and more"), nil, wirev1.Code_CODE_BAD_FRAME},
		{"TLS", []byte{0x16, 3, 1, 0, 100}, nil, wirev1.Code_CODE_UNSUPPORTED},
		{"MQTT", []byte{0x10, 12, 0, 4, 'M', 'Q', 'T', 'T'}, nil, wirev1.Code_CODE_UNSUPPORTED},
		{"a frame before Hello", sub("room/1"), nil, wirev1.Code_CODE_BAD_FRAME},
		{"a Hello of 13 KiB", frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Token: string(bytes.Repeat([]byte("x"), 13<<10))}), nil, wirev1.Code_CODE_FRAME_TOO_LARGE},
		{"another version", frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 2}), nil, wirev1.Code_CODE_UNSUPPORTED},
		{"a malformed Hello", []byte{0, 0, 2, 1, 0xff, 0xff}, nil, wirev1.Code_CODE_BAD_FRAME},
		{"a second Hello", hello, hello, wirev1.Code_CODE_BAD_FRAME},
		{"a 2 MiB frame", hello, big, wirev1.Code_CODE_FRAME_TOO_LARGE},
		{"an unknown frame", hello, []byte{0, 0, 0, 0x7f}, wirev1.Code_CODE_UNKNOWN_FRAME},
		{"a frame that edges send", hello, []byte{0, 0, 0, 0x02}, wirev1.Code_CODE_UNKNOWN_FRAME},
		{"a malformed Subscribe", hello, []byte{0, 0, 2, 3, 0xff, 0xff}, wirev1.Code_CODE_BAD_FRAME},
		{"a malformed Ack", hello, []byte{0, 0, 2, 8, 0x0a, 0x7f}, wirev1.Code_CODE_BAD_FRAME},
		{"id 0", hello, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Filter: "a"}), wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		t.Run(x.name, func(t *testing.T) {
			for tries := 1; ; tries++ {
				before := l.Stats().Closes[x.want]
				c := dial(t, l)
				_, err := c.Write(x.first)
				if x.then != nil {
					c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
					_, err = c.Write(x.then)
				}
				refusal, whole := &wirev1.Error{}, err == nil
				if whole {
					refusal, whole = c.refusal()
				}
				if whole && (refusal.GetCode() != x.want || refusal.GetRef() != 0) {
					t.Fatalf("got %v, want %v", refusal, x.want)
				}
				eventually(t, "counted", func() bool { return l.Stats().Closes[x.want] == before+1 })
				if whole {
					break
				}
				if tries == 10 {
					t.Fatalf("cut off: %v", err)
				}
			}
		})
	}
	c := dial(t, l)
	c.hello(&wirev1.Hello{})
	c.write([]byte{0, 0, 1, 0x80, 9}) // one that may be skipped
	c.write(sub("a//b"))
	var e wirev1.Error
	c.read(wirev1.FrameType_FRAME_TYPE_ERROR, &e)
	if e.GetCode() != wirev1.Code_CODE_BAD_TOPIC || e.GetRef() != 1 {
		t.Fatalf("got %v", &e)
	}
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"}) // it goes on
}

func TestTornFrames(t *testing.T) {
	l, mesh := run(t, Limits{})
	c := dial(t, l)
	all := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	all = append(all, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "open/#"})...)
	all = append(all, frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 2, Topic: "open/x", Payload: make([]byte, 300)})...)
	for i := range all {
		c.write(all[i : i+1])
	}
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	var got []wirev1.FrameType
	for range 3 { // Published may come before or after either of the others
		ft, _, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ft)
	}
	subscribed := slices.Index(got, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED)
	message := slices.Index(got, wirev1.FrameType_FRAME_TYPE_MESSAGE)
	if subscribed < 0 || message < subscribed || !slices.Contains(got, wirev1.FrameType_FRAME_TYPE_PUBLISHED) {
		t.Fatalf("got %v", got)
	}
	c.write(frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "open/x", Payload: make([]byte, 200<<10)}))
	if m := c.message(); len(m.GetPayload()) != 200<<10 {
		t.Fatalf("%d bytes", len(m.GetPayload()))
	}
	_ = mesh
}

func TestFramesBehindHelloWaitForTheSession(t *testing.T) {
	l, mesh := run(t, Limits{})
	mesh.Hold()
	c := dial(t, l)
	c.write(append(frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "s"}),
		frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_SESSION})...))
	eventually(t, "Hello was read", func() bool { return l.Stats().Frames == 1 })
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	mesh.Release()
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	seen := map[wirev1.FrameType]bool{}
	for range 2 {
		ft, _, err := wire.Read(c, nil, wire.MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		seen[ft] = true
	}
	if !seen[wirev1.FrameType_FRAME_TYPE_SUBSCRIBED] || !seen[wirev1.FrameType_FRAME_TYPE_PONG] {
		t.Fatalf("got %v", seen)
	}
}

func TestSlowReaderCatchesUpWithoutLoss(t *testing.T) { eachSender(t, slowReaderCatchesUp) }

func slowReaderCatchesUp(t *testing.T, send SendMode) {
	l, mesh := runSending(t, Limits{QueueBytes: 64 << 10}, send)
	slow, fast := dial(t, l), dial(t, l)
	for _, c := range []*client{slow, fast} {
		c.hello(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	}
	const n, size = 2000, 16 << 10 // 32 MB: more than kernel buffers hold
	go func() {
		for i := range n {
			mesh.Send("room/1", string(bytes.Repeat([]byte{byte(i)}, size)))
		}
	}()
	for i := range n {
		if m := fast.message(); m.GetSeq() != uint64(i+1) {
			t.Fatalf("fast got %d, want %d", m.GetSeq(), i+1)
		}
	}
	eventually(t, "the slow one fell behind", func() bool { return l.Stats().Behind > 0 })
	if q := l.Stats().QueuedBytes; q > 2*64<<10 {
		t.Fatalf("%d bytes queued", q)
	}
	for i := range n {
		if m := slow.message(); m.GetSeq() != uint64(i+1) || len(m.GetPayload()) != size || m.GetPayload()[0] != byte(i) {
			t.Fatalf("slow got %d, want %d", m.GetSeq(), i+1)
		}
	}
}

func TestPeerThatTakesNoAnswersIsNotRead(t *testing.T) {
	l, _ := run(t, Limits{})
	c := dial(t, l)
	c.hello(&wirev1.Hello{})
	ping := bytes.Repeat(frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1}), 1000)
	if err := c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for sent := 0; ; sent += len(ping) {
		if _, err := c.Write(ping); err != nil {
			break // the kernel's buffers are full in both directions
		}
		if sent > 256<<20 {
			t.Fatal("the edge reads without end")
		}
	}
	if q := l.Stats().QueuedBytes; q > 1<<20 {
		t.Fatalf("%d bytes of answers are queued", q)
	}
	d := dial(t, l) // and nobody else notices
	d.hello(&wirev1.Hello{})
}

func TestLoopsShareAPort(t *testing.T) {
	mesh := upstreamtest.New(func(exchange.Event) {})
	loops, err := NewAll(Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, ListenAddr: "127.0.0.1:0", Poller: testPoller, Limits: usual(Limits{})}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Addr() != loops[0].Addr() {
			t.Fatalf("%s and %s", l.Addr(), loops[0].Addr())
		}
	}
	for i := range 64 {
		dial(t, loops[0]).hello(&wirev1.Hello{ClientId: fmt.Sprint(i)})
	}
	eventually(t, "both have connections", func() bool {
		a, b := loops[0].Stats().Accepts, loops[1].Stats().Accepts
		return a > 0 && b > 0 && a+b == 64
	})
	for _, l := range loops {
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrainEndsWithinItsDeadline(t *testing.T) { eachSender(t, drainEnds) }

func drainEnds(t *testing.T, send SendMode) {
	l, _ := runSending(t, Limits{}, send)
	c := dial(t, l)
	c.hello(&wirev1.Hello{})
	done := make(chan struct{})
	if !l.Post(exchange.Drain{JitterMS: 5, DeadlineMS: uint32(patience.Milliseconds()), Addresses: func() []string { return []string{"elsewhere:7400"} }, Done: func() { close(done) }}) {
		t.Fatal("refused")
	}
	var g wirev1.GoAway
	c.read(wirev1.FrameType_FRAME_TYPE_GO_AWAY, &g)
	if g.GetCode() != wirev1.Code_CODE_DRAINING || g.GetReconnectAfterMs() > 5 || len(g.GetAddresses()) != 1 {
		t.Fatalf("GoAway %v", &g)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("after GoAway: %v", err)
	}
	_ = c.Close()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the drain has no end")
	}
	if c, err := net.Dial("tcp", l.Addr()); err == nil {
		_ = c.Close()
		t.Fatal("a draining loop still listens")
	}
}

func TestLagIsSampled(t *testing.T) {
	l, _ := run(t, Limits{})
	eventually(t, "three samples", func() bool { return l.Stats().Lag.Samples >= 3 })
	lag := l.Stats().Lag
	if q := lag.Recent(); q.P50 > q.Max || q.Max == 0 {
		t.Fatalf("recent %+v", q)
	}
	if q := lag.SinceStart(); q.P50 > q.P99 || q.Max != lag.Max {
		t.Fatalf("since start %+v", q)
	}
	eventually(t, "it turns", func() bool { return l.Check() == nil })
}

func TestRedeliveryAndSessionOverSockets(t *testing.T) { eachSender(t, redeliveryAndSession) }

func redeliveryAndSession(t *testing.T, send SendMode) {
	l, mesh := runSending(t, Limits{}, send)
	connect := func() (*client, *wirev1.Welcome, *wirev1.Subscribed) {
		c := dial(t, l)
		w := c.hello(&wirev1.Hello{ClientId: "ann", Session: "inbox"})
		return c, w, c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: wirev1.Start_START_SESSION})
	}
	c, w, _ := connect()
	if w.GetResumed() {
		t.Fatal("resumed what never was")
	}
	mesh.Send("room/1", "a", "b")
	for seq := range uint64(2) {
		if m := c.message(); m.GetSeq() != seq+1 || m.GetAttempt() != 0 || len(m.GetSubs()) != 1 {
			t.Fatalf("Message %v", m)
		}
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 2, Sub: 1, Epoch: upstreamtest.BaseEpoch}}})
	if m := c.message(); m.GetSeq() != 1 || m.GetAttempt() != 1 {
		t.Fatalf("Message %v", m)
	}
	_ = c.Close()
	eventually(t, "closed", func() bool { return l.Stats().Connections == 0 })
	c, w, s := connect()
	if !w.GetResumed() || !s.GetRecovered() {
		t.Fatalf("%v %v", w, s)
	}
	if m := c.message(); m.GetSeq() != 1 || m.GetAttempt() < 2 {
		// more, if the end of the first connection took its time
		t.Fatalf("Message %v", m)
	}
	c.send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 2, Through: true}}})
	eventually(t, "the cursor is stored", func() bool { return mesh.Session("client:ann", "inbox").Cursors["room/1"].GetFloor() == 2 })
}

// usual are limits of a test, with those of the edge's settings that it does not mention.
func usual(l Limits) Limits {
	l.MaxFrame = cmp.Or(l.MaxFrame, 1<<20)
	l.Subscriptions = cmp.Or(l.Subscriptions, 1000)
	l.QueueMessages = cmp.Or(l.QueueMessages, 1024)
	l.QueueBytes = cmp.Or(l.QueueBytes, 1<<20)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, patience)
	l.FrameTimeout = cmp.Or(l.FrameTimeout, 30*time.Second)
	l.StuckTimeout = cmp.Or(l.StuckTimeout, 2*time.Minute)
	return l
}
