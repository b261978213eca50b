package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// loseOnce loses the first message to NATS that what picks, and counts it.
func loseOnce(m *harness.Mesh, what func(subject string, payload []byte) bool) *atomic.Int32 {
	var lost atomic.Int32
	m.Proxy.Lose(func(subject string, payload []byte) bool {
		return lost.Load() == 0 && what(subject, payload) && lost.Add(1) == 1
	})
	return &lost
}

// wasLost waits until something was lost, without which a test shows nothing. On a busy machine it
// may be repaired before.
func wasLost(t *testing.T, what string, lost *atomic.Int32) {
	t.Helper()
	procmesh.Await(t, what+" was lost", func() bool { return lost.Load() > 0 })
}

// routerFrame decodes a frame from a router to an edge; nil for anything else.
func routerFrame(subject string, payload []byte) *meshv1.RouterFrame {
	if !strings.HasSuffix(subject, ".frames") {
		return nil
	}
	var f meshv1.RouterFrame
	if proto.Unmarshal(payload, &f) != nil {
		return nil
	}
	return &f
}

// carries picks the frame with message seq of topic.
func carries(topic string, seq uint64) func(string, []byte) bool {
	return func(subject string, payload []byte) bool {
		for _, d := range routerFrame(subject, payload).GetDeliveries() {
			if d.GetTopic() == topic && d.GetSeq() == seq {
				return true
			}
		}
		return false
	}
}

// expect reads messages until seq to has come: each once, in order, with the payload that was
// published. One whose Ack was too late, because the machine stood still, comes again and says so.
func expect(t *testing.T, c *wireclient.Client, from, to uint64) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		msg := c.Message()
		for msg.GetAttempt() > 0 && msg.GetSeq() < seq {
			c.Ack(msg, 0)
			msg = c.Message()
		}
		if msg.GetSeq() != seq || string(msg.GetPayload()) != fmt.Sprint(seq) {
			t.Fatalf("got seq %d %q, want %d", msg.GetSeq(), msg.GetPayload(), seq)
		}
		c.Ack(msg, 0)
	}
}

// Whatever single message between a router and an edge is lost, nothing durable is missing.
func TestALostBatchIsRepaired(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Proxy: true})
	const burst = 20
	for i, seq := range []uint64{1, burst / 2, burst} {
		t.Run(fmt.Sprintf("message %d of %d", seq, burst), func(t *testing.T) {
			topic := fmt.Sprintf("room/lost-%d", i)
			c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
			c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Ack: true})
			lost := loseOnce(m, carries(topic, seq))
			for n := 1; n <= burst; n++ { // one by one, so that each travels alone
				m.Publish(t, topic, fmt.Sprint(n))
			}
			expect(t, c, 1, burst)
			wasLost(t, "the message", lost)
		})
	}
	t.Run("a whole batch", func(t *testing.T) {
		const topic = "room/lost-batch"
		c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
		c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Ack: true})
		lost := loseOnce(m, func(subject string, payload []byte) bool {
			return len(routerFrame(subject, payload).GetDeliveries()) > 1
		})
		m.PublishBatch(t, topic, 200)
		expect(t, c, 1, 200)
		wasLost(t, "a batch of several messages", lost)
	})
	t.Run("the last message and the beat after it", func(t *testing.T) {
		const topic = "room/lost-beat"
		c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
		c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Ack: true})
		var message, beat atomic.Int32
		last := carries(topic, 3)
		m.Proxy.Lose(func(subject string, payload []byte) bool {
			if last(subject, payload) {
				return message.Add(1) == 1
			}
			f := routerFrame(subject, payload)
			isBeat := f != nil && len(f.GetDeliveries()) == 0 && len(f.GetCheckTopics()) == 0
			return isBeat && message.Load() == 1 && beat.Add(1) == 1
		})
		for n := 1; n <= 3; n++ {
			m.Publish(t, topic, fmt.Sprint(n))
		}
		expect(t, c, 1, 3)
		wasLost(t, "the message", &message)
		wasLost(t, "a beat", &beat)
	})
}

// An announcement that is lost delays Subscribed, and costs nothing durable.
func TestALostAnnouncementIsRepaired(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Proxy: true})
	const topic = "room/lost-announcement"
	lost := loseOnce(m, func(subject string, _ []byte) bool { return subject == bus.EdgeAnnounce })
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: topic, Ack: true})
	for n := 1; n <= 5; n++ {
		m.Publish(t, topic, fmt.Sprint(n))
	}
	expect(t, c, 1, 5)
	wasLost(t, "an announcement", lost)
}
