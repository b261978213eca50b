package loop

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/wsframe"
)

// smallBuffers have a socket take half of what is sent to it.
var smallBuffers = poll.Buffers{Send: 4 << 10, NotSent: 4 << 10}

// browser is a WebSocket of a loop whose turns are the test's, with subscriptions. All that it says
// comes at once, its request in front.
func browser(t *testing.T, l *Loop, subs ...*wirev1.Subscribe) *client {
	t.Helper()
	return browserOver(t, l, dial(t, l), subs...)
}

func browserOver(t *testing.T, l *Loop, c *client, subs ...*wirev1.Subscribe) *client {
	t.Helper()
	frames := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	for _, s := range subs {
		frames = append(frames, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, s)...)
	}
	want, upgraded := l.hub.Stats().Subscriptions+int64(len(subs)), l.stats.Upgraded
	c.write(masked([]byte(request(protocolHeader)), 0x80|byte(wsframe.Binary), frames))
	turnUntil(t, l, "the browser is subscribed", func() bool { return l.stats.Upgraded > upgraded && l.hub.Stats().Subscriptions == want && !l.turn() })
	c = upgradedBy(t, c)
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	for range subs {
		c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	}
	return c
}

// upgradedBy takes the answer to the request of a connection.
func upgradedBy(t *testing.T, c *client) *client {
	t.Helper()
	w := &webConn{Conn: c, in: bufio.NewReader(c)}
	r, err := http.ReadResponse(w.in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", r, err)
	}
	_ = r.Body.Close()
	return &client{t, w}
}

// turnedMessage is the next message of a client, which the loop sends by the test's turns.
func turnedMessage(t *testing.T, l *Loop, c *client) *wirev1.Message {
	t.Helper()
	type frame struct {
		ft   wirev1.FrameType
		body []byte
		err  error
	}
	got := make(chan frame, 1)
	go func() {
		ft, body, err := c.frame()
		got <- frame{ft, body, err}
	}()
	var f frame
	turnUntil(t, l, "a message arrives", func() bool {
		select {
		case f = <-got:
			return true
		default:
			return false
		}
	})
	var m wirev1.Message
	if err := proto.Unmarshal(f.body, &m); f.err != nil || err != nil || f.ft != wirev1.FrameType_FRAME_TYPE_MESSAGE {
		t.Fatalf("got %v, %v, %v", f.ft, f.err, err)
	}
	return &m
}

// What a socket has not taken of a message is copied before anything else is done with the hub,
// which makes the ends of frames for others in the same memory.
func TestTheRestOfAMessageIsItsOwn(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		l, mesh := byHandIn(t, Config{Send: send, Buffers: smallBuffers})
		// The one has more queued than a message of WebSocket holds, and what is left has ends of
		// its own; the other's message, which follows, is cut.
		one := browser(t, l, &wirev1.Subscribe{Id: 1, Filter: "user/1/inbox"}, &wirev1.Subscribe{Id: 1 << 31, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
		other := browser(t, l, &wirev1.Subscribe{Id: 7, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
		long := bytes.Repeat([]byte("m"), 600<<10)
		mesh.Send("user/1/inbox", string(bytes.Repeat([]byte("x"), 40<<10)))
		mesh.Send("room/1", string(long))
		turnUntil(t, l, "both are stuck", func() bool { return l.peers.webs.Taken() == 2 && !l.turn() })
		m := turnedMessage(t, l, other)
		if len(m.GetSubs()) != 1 || m.GetSubs()[0] != 7 || !bytes.Equal(m.GetPayload(), long) {
			t.Errorf("the other got a message of %d bytes for %d", len(m.GetPayload()), m.GetSubs())
		}
		turnedMessage(t, l, one)
		if m := turnedMessage(t, l, one); len(m.GetSubs()) != 1 || m.GetSubs()[0] != 1<<31 || !bytes.Equal(m.GetPayload(), long) {
			t.Errorf("the one got a message of %d bytes for %d", len(m.GetPayload()), m.GetSubs())
		}
	})
}

// However many sockets take little of long messages, a turn copies few of them; the others have
// their turns, and nothing is lost.
func TestATurnCopiesFewLongMessages(t *testing.T) {
	eachSender(t, func(t *testing.T, send SendMode) {
		l, mesh := byHandIn(t, Config{Send: send, Buffers: smallBuffers})
		const n = 48
		var all []*client
		for range n {
			all = append(all, browser(t, l, &wirev1.Subscribe{Id: 1, Filter: "room/1"}))
		}
		long := bytes.Repeat([]byte("m"), 600<<10)
		mesh.Send("room/1", string(long))
		most := 0
		turnUntil(t, l, "all are stuck", func() bool {
			most = max(most, l.copied)
			return l.peers.webs.Taken() == n && !l.turn()
		})
		if most == 0 || most > copiedMost+webBatch+len(long) {
			t.Errorf("a turn copied %d bytes", most)
		}
		for _, c := range all {
			if m := turnedMessage(t, l, c); !bytes.Equal(m.GetPayload(), long) {
				t.Fatalf("a message of %d bytes came", len(m.GetPayload()))
			}
		}
	})
}

// Who takes nothing is closed after --stuck-timeout, also where all that was queued for it lies in
// a message that was begun: it says that it is there, and holds what is claimed and un-ACKed.
func TestAWebSocketThatTakesNothingIsClosed(t *testing.T) {
	l, mesh := byHandIn(t, Config{Buffers: smallBuffers})
	c := browser(t, l, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
	mesh.Send("room/1", string(bytes.Repeat([]byte("m"), 600<<10)))
	turnUntil(t, l, "it is stuck", func() bool { return l.peers.webs.Taken() == 1 && !l.peers.get(0).writable })
	w := c.Conn.(*webConn)
	closed := func() bool { return l.hub.Stats().Closes[wirev1.Code_CODE_SLOW_CONSUMER] == 1 }
	for waited := time.Duration(0); !closed(); waited += time.Second {
		if waited > 2*l.cfg.Limits.StuckTimeout {
			t.Fatalf("not closed after %v, %d stalled", waited, l.hub.Stats().Stalled)
		}
		if _, err := w.Conn.Write(masked(nil, 0x80|byte(wsframe.Pong), nil)); err != nil {
			t.Fatal(err)
		}
		passes(l, time.Second)
		for l.turn() {
		}
	}
	turnUntil(t, l, "nothing is left", func() bool {
		s := l.hub.Stats()
		return s.Connections == 0 && s.QueuedBytes == 0 && s.BudgetBytes == 0 && s.KernelBytes == 0
	})
}

// Whatever a client sends is under its rates: Pings, and fragments of nothing, too.
func TestControlFramesHaveARate(t *testing.T) {
	for name, one := range map[string][]byte{
		"pings":     masked(nil, 0x80|byte(wsframe.Ping), []byte("are you there?")),
		"fragments": masked(nil, byte(wsframe.Continuation), nil),
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := byHand(t, poll.ModeWrite)
			c := browser(t, l)
			w := c.Conn.(*webConn)
			l.cfg.Rates = Rates{Frames: 100}
			sent := masked(nil, byte(wsframe.Binary), nil)
			if _, err := w.Conn.Write(append(sent, bytes.Repeat(one, 1000)...)); err != nil {
				t.Fatal(err)
			}
			(&client{t, w.Conn}).arrived(l)
			turnUntil(t, l, "it is read no more for a while", func() bool { return l.stats.Paced > 0 })
		})
	}
}

// Who is welcomed so late that it was silent for half of its patience is asked in the same turn,
// and the loop comes to rest.
func TestWhoIsWelcomedLateIsAskedAtOnce(t *testing.T) {
	l, mesh := byHand(t, poll.ModeWrite)
	mesh.Hold()
	c := dial(t, l)
	c.write(masked([]byte(request(protocolHeader)), 0x80|byte(wsframe.Binary), frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "a", Session: "s", SessionTtlS: 60, HeartbeatMs: 1000})))
	turnUntil(t, l, "its session is asked for", func() bool { return l.stats.Upgraded == 1 && !l.turn() })
	passes(l, 2*time.Second)
	l.turn()
	mesh.Release()
	turns := 0
	for ; l.turn(); turns++ {
		if turns > 100 {
			t.Fatal("the loop turns without end")
		}
	}
	c = upgradedBy(t, c)
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	if n := c.Conn.(*webConn).pings; n != 1 {
		t.Fatalf("it was asked %d times", n)
	}
}
