package loop

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// Shedding begins once half of the last second was above the limit, goes on between the limit and
// half of it, and ends below that.
func TestShedding(t *testing.T) {
	const limit = 100 * time.Millisecond
	s := shed{limit: limit}
	samples := func(what string, n int, lag time.Duration, want bool) {
		t.Helper()
		before := s.on
		for i := range n {
			if s.add(lag); i < n-1 && s.on != before {
				t.Fatalf("%s: sheds %v after %d samples of %d", what, s.on, i+1, n)
			}
		}
		if s.on != want {
			t.Fatalf("%s: sheds %v after %d samples of %v", what, s.on, n, lag)
		}
	}
	samples("a pause, however long", 1, time.Hour, false)
	samples("calm", shedSamples, 0, false)
	samples("four", 4, limit+1, false)
	samples("the fifth", 1, limit+1, true)
	samples("half of the limit is not below it", 10*shedSamples, limit/2, true)
	samples("the limit", 10*shedSamples, limit, true)
	samples("less than half", 6, limit/2-1, false)
	samples("half of the limit is not above it", 10*shedSamples, limit/2, false)
	samples("the limit", 10*shedSamples, limit, false)
	samples("late again", 5, limit+1, true)

	s = shed{}
	samples("without a limit", 100, time.Hour, false)
}

// A loop that is late answers what it has, and newcomers with OVERLOADED; once it is not, it takes
// them.
func TestLateLoopRefusesNewcomers(t *testing.T) {
	l, mesh := byHand(t, poll.ModeWrite)
	l.shed.limit = time.Second
	lag := func(d time.Duration) {
		for range shedSamples {
			l.sample(d)
		}
	}
	answers := func(c *client, ft, want wirev1.FrameType, m, into proto.Message) {
		t.Helper()
		c.send(ft, m)
		frames := l.hub.Frames()
		turnUntil(t, l, "the frame is read", func() bool { return l.hub.Frames() > frames && !l.turn() })
		c.read(want, into)
	}
	old := subscribed(t, l, 1)[0]

	lag(2 * time.Second)
	if !l.stats.Shedding || l.stats.Sheds != 1 {
		t.Fatalf("sheds %v, the time %d", l.stats.Shedding, l.stats.Sheds)
	}
	refusal := &wirev1.Error{}
	overloaded := func(ref uint32) {
		t.Helper()
		if ms := refusal.GetRetryAfterMs(); refusal.GetCode() != wirev1.Code_CODE_OVERLOADED || refusal.GetRef() != ref || ms < 1000 || ms >= 2000 {
			t.Fatalf("refused with %v", refusal)
		}
	}
	answers(old, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Subscribe{Id: 2, Filter: "room/2"}, refusal)
	overloaded(2)
	answers(old, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Subscribe{Id: 2, Filter: "a//b"}, refusal)
	if refusal.GetCode() != wirev1.Code_CODE_BAD_TOPIC {
		t.Fatalf("what can never succeed is refused with %v", refusal)
	}
	answers(old, wirev1.FrameType_FRAME_TYPE_PING, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Ping{}, &wirev1.Pong{})
	mesh.Send("room/1", "a")
	turnUntil(t, l, "the message is sent", func() bool { return l.hub.Stats().Deliveries == 1 })
	old.read(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{})
	late := dial(t, l)
	answers(late, wirev1.FrameType_FRAME_TYPE_HELLO, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Hello{Version: 1, ClientId: "ann", Session: "phone"}, refusal)
	overloaded(0)
	if s := mesh.Session("client:ann", "phone"); s.Generation != 0 {
		t.Fatalf("a session was attached: %+v", s)
	}
	_ = late.Close()
	turnUntil(t, l, "its end", func() bool { return l.hub.Stats().Connections == 1 })
	s := l.hub.Stats()
	if c := wirev1.Code_CODE_OVERLOADED; s.Closes[c] != 1 || s.Refused[c] != 1 {
		t.Fatalf("counted %d and %d", s.Closes[c], s.Refused[c])
	}

	lag(0)
	if l.stats.Shedding || l.stats.Sheds != 1 {
		t.Fatalf("sheds %v, the time %d", l.stats.Shedding, l.stats.Sheds)
	}
	answers(old, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribe{Id: 2, Filter: "room/2"}, &wirev1.Subscribed{})
	answers(dial(t, l), wirev1.FrameType_FRAME_TYPE_HELLO, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Hello{Version: 1}, &wirev1.Welcome{})
}
