package delivery

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A topic's namespace turns durable, and its first message goes before the answer of a subscription
// to it (loop/turn.go, takeMail: answers of topics let others go first).
func TestATopicTurnsDurableBeforeTheAnswer(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.kept = frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "talk"})
	c.asked[1] = &wirev1.Subscribe{Id: 1, Filter: "talk"}
	c.feed()
	answer := w.mail // without heads
	w.mail = nil
	w.mesh.Send("talk", "a") // posted behind the answer, and goes first
	w.settle()
	w.mail = append(w.mail, answer...)
	w.settle()
	w.mesh.Send("talk", "b")
	c.expect("Subscribed 1 head=0", "talk/1", "talk/2")
}

// A live subscription has what comes from its Subscribe on, and nothing of before, whatever else is
// beginning: a topic has turned durable some time ago, and the edge does not know of the policy
// yet.
func TestALiveSubscriptionGetsNothingOfBefore(t *testing.T) {
	for _, busy := range []bool{false, true} {
		w := newWorld(t, Limits{})
		w.manyTopics(900)
		old, c, many := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
		old.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
		old.expect("Subscribed 1 head=0")
		if busy {
			many.asks(&wirev1.Subscribe{Id: 1, Filter: "many/+"})
			for _, e := range w.mail {
				w.h.Event(e)
			}
			w.mail = nil
		}
		w.mesh.Send("talk", "a", "b")
		for _, e := range w.mail {
			w.h.Event(e)
		}
		w.mail = nil
		for n := 0; n < 100 && w.h.topics.ByName.Get("talk").Last < 2; n++ {
			w.h.Work(40)
		}
		if !busy {
			w.settle()
		}
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"}) // long after
		w.mesh.Send("talk", "c")
		if got := fmt.Sprint(c.texts()); got != "[Subscribed 1 head=0 talk/3]" {
			t.Errorf("another one begins: %v: it gets %v", busy, got)
		}
	}
}
