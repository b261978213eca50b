package loop

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// As TestAMessageBeforeItsAnswerIsDelivered, of a topic whose namespace turns durable just then:
// its Join asked for no heads.
func TestAMessageOfATopicThatTurnsDurableBeforeItsAnswer(t *testing.T) {
	l, mesh := byHand(t, poll.ModeWrite)
	c := dial(t, l)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	turnUntil(t, l, "it is welcome", func() bool { return l.hub.Frames() == 1 && !l.turn() })
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	for range 8 * joinsBudget {
		l.Post(exchange.Joined{Conn: exchange.Conn{Slot: 1 << 20}, Exact: true})
	}
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "talk"})
	c.arrived(l)
	for l.hub.Frames() == 1 {
		l.poll()
		l.read()
	}
	mesh.Send("talk", "first")
	if l.takeMail(); l.joins.Len() == 0 {
		t.Fatal("its answer let nothing go first")
	}
	turnUntil(t, l, "all is done", func() bool { return !l.turn() })
	c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	mesh.Send("talk", "second")
	turnUntil(t, l, "all is done", func() bool { return !l.turn() })
	if m := c.message(); string(m.GetPayload()) != "first" {
		t.Fatalf("the first message that comes is %q", m.GetPayload())
	}
}
