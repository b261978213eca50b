package delivery

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A client gives up a filter that its session has had with a Subscribe and an Unsubscribe of it.
// However far the subscription has begun by then, no position is left in the store that no filter
// wants, and the others stay.
func TestASubscriptionThatIsTakenBackLeavesNoPositions(t *testing.T) {
	const topics = 150
	for steps := range 40 {
		for _, held := range []bool{false, true} { // the heads come when it is over
			w := newWorld(t, Limits{WildcardTopics: 1000})
			for i := range topics {
				w.mesh.Append(fmt.Sprint("room/", i), "a")
			}
			c := w.session()
			c.subscribeSession("room/+")
			c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/7", Ack: true, Start: wirev1.Start_START_SESSION})
			w.h.Gone(c.slot)
			w.settle()
			if n := len(w.mesh.Session("client:ann", "inbox").Cursors); n != topics {
				t.Fatalf("the session stands in %d topics", n)
			}
			w.mesh.Send("room/7", "b", "c")

			c = w.session()
			if held {
				w.mesh.Hold()
			}
			c.asks(&wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
			for range steps {
				w.h.Work(1)
			}
			c.kept = append(c.kept, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})...)
			c.feed()
			if held {
				for range steps {
					w.h.Work(1)
				}
				w.mesh.Release()
			}
			w.settle()
			s := w.mesh.Session("client:ann", "inbox")
			if names := slices.Collect(maps.Keys(s.Cursors)); !slices.Equal(s.Filters, []string{"room/7"}) || !slices.Equal(names, s.Filters) {
				t.Fatalf("taken back after %d steps, heads held back: %v: the session has filters %v, and stands in %d topics, %v", steps, held, s.Filters, len(names), names[:min(3, len(names))])
			}
			c.take()
			c.got = nil
			c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/7", Ack: true, Start: wirev1.Start_START_SESSION})
			c.expect("Subscribed 2 head=3", "room/7/2 subs=[2]", "room/7/3 subs=[2]")
		}
	}
}
