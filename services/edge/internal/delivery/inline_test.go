package delivery

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// post hands the mail on without doing any work.
func (w *world) post() {
	mail := w.mail
	w.mail = nil
	for _, e := range mail {
		w.h.Event(e)
	}
}

// asks sends a Subscribe without any work being done.
func (c *client) asks(m *wirev1.Subscribe) {
	c.asked[m.GetId()] = m
	c.kept = append(c.kept, frameOf(c.w.t.(*testing.T), wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)...)
	c.feed()
	c.w.post()
}

func (c *client) of(prefix string) (got []string) {
	for _, s := range c.texts() {
		if strings.HasPrefix(s, prefix) || strings.HasPrefix(s, "Subscribed 2 ") || strings.HasPrefix(s, "Progress "+prefix) {
			got = append(got, s)
		}
	}
	return got
}

func fillRooms(w *world, n int) {
	for i := range n {
		w.mesh.Append(fmt.Sprintf("room/%d", i), "first")
	}
}

// The first message of a topic whose log is empty comes while a subscription to it is in line.
func TestFirstMessageWhileInLine(t *testing.T) {
	for _, start := range []wirev1.Start{wirev1.Start_START_LIVE, wirev1.Start_START_EARLIEST, wirev1.Start_START_SESSION} {
		t.Run(start.String(), func(t *testing.T) {
			w := newWorld(t, Limits{})
			w.table = policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "late", Policy: &pushmeshv1.Policy{Durable: true}}, {Prefix: "room", Policy: &pushmeshv1.Policy{Durable: true}}})
			fillRooms(w, 200)
			c := w.session()
			c.expect("Welcome")
			c.asks(&wirev1.Subscribe{Id: 1, Filter: "room/+", Start: wirev1.Start_START_EARLIEST})
			c.asks(&wirev1.Subscribe{Id: 2, Filter: "late/1", Start: start})
			w.mesh.Send("late/1", "a")
			w.post()
			w.settle()
			got := c.of("late/")
			w.mesh.Send("late/1", "b")
			got = append(got, c.of("late/")...)
			if len(got) != 3 {
				t.Fatalf("got %q", got)
			}
		})
	}
}

// An ephemeral message of a topic that is new to the loop, for a session's subscription that is
// open, while another subscription of the connection begins.
func TestEphemeralForAnOpenSession(t *testing.T) {
	w := newWorld(t, Limits{})
	fillRooms(w, 200)
	c := w.session()
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "talk/+", Start: wirev1.Start_START_SESSION})
	c.expect("Welcome", "Subscribed 2 head=0")
	d := w.connect(&wirev1.Hello{})
	d.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk/1"})
	c.asks(&wirev1.Subscribe{Id: 1, Filter: "room/+", Start: wirev1.Start_START_EARLIEST})
	for range 2 {
		w.h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("talk/1", 0, 0, "live")}})
	}
	w.settle()
	if got := c.of("talk/"); len(got) != 2 {
		t.Fatalf("got %q, the neighbour %q", got, d.texts())
	}
}

// A connection that once had more than ManyOf memberships joins one more group.
func TestMembershipsAreFoundAgain(t *testing.T) {
	w := newWorld(t, Limits{})
	w.mesh.Append("open/1", "first")
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	for i := range uint32(17) {
		c.subscribe(&wirev1.Subscribe{Id: i + 1, Filter: "open/#", Group: fmt.Sprintf("g%d", i), Ack: true})
	}
	for i := range uint32(16) {
		c.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: i + 1})
	}
	c.texts()
	c.subscribe(&wirev1.Subscribe{Id: 40, Filter: "open/#", Group: "late", Ack: true})
	if got := c.texts(); len(got) != 1 {
		t.Fatalf("the 18th membership is answered by %q; %d stale events", got, w.h.Stats().StaleEvents)
	}
}

// A session's open subscription ends while another one that shares its positions is in line.
func TestSessionSharesWhatEnds(t *testing.T) {
	for _, units := range []int{1, 100, 300, 500, 700, 900} {
		t.Run(fmt.Sprint(units), func(t *testing.T) {
			w := newWorld(t, Limits{})
			fillRooms(w, 200)
			c := w.session()
			c.expect("Welcome")
			c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION})
			c.texts()
			c.asks(&wirev1.Subscribe{Id: 2, Filter: "room/#", Ack: true, Start: wirev1.Start_START_SESSION})
			for range units / 50 {
				w.h.Work(1)
			}
			c.kept = append(c.kept, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})...)
			c.feed()
			w.settle()
			c.texts()
			without := 0
			cc := w.h.conns.Get(c.slot)
			for _, tr := range cc.Tracks.All() {
				if tr.Cursor == nil {
					without++
				}
			}
			s := w.mesh.Session("client:ann", "inbox")
			if without > 0 || len(s.Cursors) != 200 {
				t.Fatalf("%d of %d tracks of the session have no cursor; %d cursors are stored for filters %v", without, cc.Tracks.Len(), len(s.Cursors), s.Filters)
			}
		})
	}
}
