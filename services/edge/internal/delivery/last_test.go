package delivery

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// keeping has topics under state keep their last message.
func keeping(t tester, limits Limits) *world {
	w := newWorld(t, limits)
	w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "state", Policy: &pushmeshv1.Policy{Durable: true, Keep: pushmeshv1.Keep_KEEP_LAST}}})
	w.h.rules.Namespaces = func() *policy.Table { return w.table }
	w.h.topics.PoliciesChanged()
	return w
}

func TestLastMessagesComeFirst(t *testing.T) {
	w := keeping(t, Limits{})
	w.mesh.Append("state/1", "a", "b")
	w.mesh.Append("state/2", "a", "")
	w.mesh.Append("room/1", "a")
	w.mesh.Keep("state/1", true)
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/1"})
	c.expect("Subscribed 1 head=1", "state/1/2")
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "state/2"})
	c.expect("Subscribed 2 head=2")
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "room/1"})
	c.expect("Subscribed 3 head=1")
	w.mesh.Send("state/1", "c")
	c.expect("state/1/3")

	d := w.connect(&wirev1.Hello{})
	d.subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/1", SkipLast: true})
	d.expect("Subscribed 1 head=3")
	e := w.connect(&wirev1.Hello{})
	e.subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/1", Positions: []*wirev1.Position{{Topic: "state/1", Seq: 3}}})
	e.expect("Subscribed 1 head=3")
}

// A session gets the last message once; it goes on where it stands when it comes back.
func TestASessionBeginsWithTheLastMessage(t *testing.T) {
	w := keeping(t, Limits{})
	w.mesh.Append("state/1", "a", "b")
	w.mesh.Keep("state/1", true)
	c := w.connect(&wirev1.Hello{ClientId: "c", Session: "s", HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/1", Start: wirev1.Start_START_SESSION, Ack: true})
	c.expect("Subscribed 1 head=2", "state/1/2 subs=[1]")
	c.ack("state/1", 2, false)
	w.h.Gone(c.slot)
	w.settle()
	c = w.dial()
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "c", Session: "s", HeartbeatMs: 600_000})
	c.expect("Welcome resumed")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/1", Start: wirev1.Start_START_SESSION, Ack: true})
	c.expect("Subscribed 1 head=2")
}

// Who is to get last messages is refused where they can't be found, and does not go on without.
func TestLastMessagesThatCantBeFound(t *testing.T) {
	w := keeping(t, Limits{WildcardTopics: 2})
	for i := range 3 {
		name := fmt.Sprint("state/", i)
		w.mesh.Append(name, "a")
		w.mesh.Keep(name, true)
	}
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "state/+"})
	c.expect("Error TOO_MANY_TOPICS ref=1")
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "state/+", SkipLast: true})
	c.expect("Subscribed 2 head=0")
	w.mesh.CloseStore(true)
	d := w.connect(&wirev1.Hello{})
	d.subscribe(&wirev1.Subscribe{Id: 3, Filter: "#"})
	d.expect("Error UNAVAILABLE ref=3")
	if n := w.mesh.Wants("#"); n != 0 {
		t.Errorf("%d joins are left", n)
	}
}

// Whatever is published, deleted and subscribed in whatever order, by one subscription of a
// connection or several: what it saw last of a topic is what that keeps, and nothing comes twice,
// or after what is newer.
func TestASubscriberKnowsWhatIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := keeping(t, Limits{})
		topics := []string{"state/1", "state/2", "state/2/x"}
		kept := map[string]uint64{} // seq by topic
		head := map[string]uint64{}
		type watcher struct {
			*client
			filters []string
			seen    map[string]uint64 // last seq by topic
			has     map[string]uint64 // what it takes for kept
		}
		var all []*watcher
		look := func(c *watcher) {
			c.take()
			for _, fr := range c.got {
				switch m := fr.m.(type) {
				case *wirev1.Subscribed:
				case *wirev1.Message:
					if m.GetSeq() <= c.seen[m.GetTopic()] {
						t.Fatalf("%v: %s/%d after %d", c.filters, m.GetTopic(), m.GetSeq(), c.seen[m.GetTopic()])
					}
					c.seen[m.GetTopic()] = m.GetSeq()
					if delete(c.has, m.GetTopic()); len(m.GetPayload()) > 0 {
						c.has[m.GetTopic()] = m.GetSeq()
					}
				default:
					t.Fatalf("%v: %s", c.filters, fr.text())
				}
			}
			c.got = nil
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom(topics).Draw(t, "topic")
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); op {
			case 0, 1: // published, or deleted
				payload := []string{"", "x"}[op]
				ms := w.mesh.Append(name, payload)
				w.mesh.Keep(name, op == 1)
				head[name]++
				if delete(kept, name); op == 1 {
					kept[name] = head[name]
				}
				w.mesh.Live(ms...)
			case 2:
				n := rapid.IntRange(0, len(all)).Draw(t, "connection")
				if n == len(all) {
					all = append(all, &watcher{client: w.connect(&wirev1.Hello{HeartbeatMs: 600_000}), seen: map[string]uint64{}, has: map[string]uint64{}})
				}
				c, filter := all[n], rapid.SampledFrom([]string{"state/1", "state/+", "state/2/#", "#"}).Draw(t, "filter")
				c.filters = append(c.filters, filter)
				c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(len(c.filters)), Filter: filter})
			case 3:
				w.settle()
				for _, c := range all {
					look(c)
				}
			}
		}
		w.settle()
		for _, c := range all {
			look(c)
			for _, name := range topics {
				matches := func(filter string) bool { return topic.Match(filter, name) }
				if slices.ContainsFunc(c.filters, matches) && c.has[name] != kept[name] {
					t.Fatalf("%v: takes %d of %s for what is kept, and %d is", c.filters, c.has[name], name, kept[name])
				}
			}
		}
	})
}
