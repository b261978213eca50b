package loop

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// Of very many Subscribes that are answered at once a message waits for a few turns at most, and
// all are taken in the end.
func TestMessagesGoBeforeABurstOfAnswers(t *testing.T) {
	const answers, most = 50_000, 6
	l, mesh := byHand(t, poll.ModeWrite)
	c := subscribed(t, l, 1)[0]
	stale, wrote := l.hub.Stats().StaleEvents, l.stats.Writes
	for range answers {
		l.Post(exchange.Joined{Conn: exchange.Conn{Slot: 1 << 20}, Exact: true})
	}
	mesh.Send("room/1", "hi")
	turns := 0
	for ; l.stats.Writes == wrote; turns++ {
		if turns == most {
			t.Fatalf("a message behind %d answers waits for more than %d turns", answers, most)
		}
		l.turn()
	}
	if m := c.message(); string(m.GetPayload()) != "hi" {
		t.Fatalf("got %v", m)
	}
	for before := l.hub.Stats().StaleEvents; before-stale < answers; {
		goesOn := l.turn()
		now := l.hub.Stats().StaleEvents
		if did := now - before; did == 0 || did > joinsBudget+joinsLeast {
			t.Fatalf("%d answers were taken in a turn", did)
		}
		if before = now; !goesOn && before-stale < answers {
			t.Fatalf("the loop sleeps with %d answers left", answers-(before-stale))
		}
	}
}

// Few answers keep their place among other events, and those of filters with wildcards always do:
// their loop knows nothing yet of the topics that they match.
func TestAnswersKeepTheirPlace(t *testing.T) {
	for _, x := range []struct {
		answers int
		exact   bool
	}{{joinsBudget, true}, {joinsBudget / 2 * 3, false}} {
		l, _ := byHand(t, poll.ModeWrite)
		subscribed(t, l, 1)
		stale, before := l.hub.Stats().StaleEvents, 0
		for range x.answers {
			l.Post(exchange.Joined{Conn: exchange.Conn{Slot: 1 << 20}, Exact: x.exact})
		}
		l.Post(exchange.Depth{Conn: l.hub.Handle(0), Reply: func(int, int) { before = int(l.hub.Stats().StaleEvents - stale) }})
		l.takeMail()
		if before != x.answers {
			t.Errorf("exact %v: %d of %d answers were taken before the next event", x.exact, before, x.answers)
		}
	}
}

// A message that goes before the answer of its own subscription is not lost to it.
func TestAMessageBeforeItsAnswerIsDelivered(t *testing.T) {
	l, mesh := byHand(t, poll.ModeWrite)
	c := dial(t, l)
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	turnUntil(t, l, "it is welcome", func() bool { return l.hub.Frames() == 1 && !l.turn() })
	c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	for range 2 * joinsBudget {
		l.Post(exchange.Joined{Conn: exchange.Conn{Slot: 1 << 20}, Exact: true})
	}
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.arrived(l)
	for l.hub.Frames() == 1 {
		l.poll()
		l.read()
	}
	mesh.Send("room/1", "hi")
	if l.takeMail(); l.joins.Len() == 0 {
		t.Fatal("its answer let nothing go first")
	}
	turnUntil(t, l, "all is done", func() bool { return !l.turn() })
	c.read(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
	if m := c.message(); string(m.GetPayload()) != "hi" {
		t.Fatalf("got %v", m)
	}
}
