package delivery

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Filters with wildcards made so that one topic meets very many of them are refused from a bound
// on, by themselves and in groups. Others go on as before, and there is room again once they end.
func TestAHostileMixOfWildcardsIsRefused(t *testing.T) {
	w := newWorld(t, Limits{Subscriptions: 1 << 12})
	c, other := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	const levels = 11
	for _, group := range []string{"", "g"} {
		var taken []uint32
		refused := ""
		for i := range uint32(1 << levels) {
			var filter strings.Builder
			for level := range levels {
				filter.WriteString([]string{"a/", "+/"}[i>>level&1])
			}
			c.subscribe(&wirev1.Subscribe{Id: i + 1, Filter: filter.String() + "z", Group: group})
			if w.h.conns.Get(c.slot).InUse(i + 1) {
				taken = append(taken, i+1)
			} else {
				refused = filter.String() + "z"
			}
		}
		if len(taken) < 2 || len(taken) > topic.MaxMet || refused == "" {
			t.Fatalf("group %q: %d filters were taken", group, len(taken))
		}
		c.got = nil
		other.subscribe(&wirev1.Subscribe{Id: 1, Filter: refused, Group: group})
		other.expect("Error OVERLOADED ref=1")
		other.subscribe(&wirev1.Subscribe{Id: 1, Filter: "+/+/+/b", Group: group})
		other.subscribe(&wirev1.Subscribe{Id: 2, Filter: strings.Repeat("a/", levels) + "z", Group: group})
		if group == "" {
			other.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
			w.mesh.Send(strings.Repeat("a/", levels)+"z", "m")
			other.expect(strings.Repeat("a/", levels) + "z/1")
		}
		for _, id := range taken {
			c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
		}
		c.got = nil
		other.subscribe(&wirev1.Subscribe{Id: 3, Filter: refused, Group: group})
		if w.settle(); !w.h.conns.Get(other.slot).InUse(3) {
			t.Fatalf("group %q: there is no room again", group)
		}
		other = w.connect(&wirev1.Hello{})
	}
}
