package delivery

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// Whoever has very many subscriptions begin, each with very many topics, has a neighbour's live
// messages wait for no more than a slice of that; and they come to their end though live messages
// never stop.
func TestLiveMessagesGoBeforeActivations(t *testing.T) {
	const topics, subscriptions, most = 300, 50, 4 * fanSlice
	k := &many{heads: topics}
	h := newHub(t, Config{Mesh: k, PolicyFor: policy.NewTable(nil).For})
	k.h = h
	h.SetTime(1, wallStart)
	var slots []uint32
	for range 2 {
		slot, _ := h.Open()
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		slots = append(slots, slot)
	}
	k.heads = 0
	h.Feed(slots[0], frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/0"}), 1)
	for h.Work(4096) {
	}
	k.heads = topics
	for i := range uint32(subscriptions) {
		h.Feed(slots[1], frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: i + 1, Filter: "room/+", Start: wirev1.Start_START_LAST_N, Seq: 1}), 1)
	}
	f, neighbour := &flusher{h: h}, h.conns.Get(slots[0])
	f.flush()
	for n := 0; h.conns.Get(slots[1]).Tracks.Len() < topics*subscriptions; n++ {
		h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/0", 0, 0, "live")}})
		h.Work(most)
		if neighbour.Out.Messages() != 1 {
			t.Fatalf("after %d messages: %d wait for the neighbour", n, neighbour.Out.Messages())
		}
		f.flush()
		if n > topics*subscriptions {
			t.Fatal("the subscriptions never begin")
		}
	}
}

// Connections whose subscriptions begin take turns: one with a single topic does not wait for those
// of one with very many.
func TestActivationsTakeTurnsByConnection(t *testing.T) {
	const topics = 1000
	a := newAsker(t, topics)
	first, second := a.connect(t), a.connect(t)
	for i := range uint32(20) {
		a.feed(t, first, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: i + 1, Filter: "room/+", Start: wirev1.Start_START_EARLIEST})
	}
	a.heads = 1
	a.feed(t, second, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Start: wirev1.Start_START_EARLIEST})
	for range 8 {
		a.h.Work(1)
	}
	if !second.Subs.At(0).Open || first.Subs.At(0).Open {
		t.Fatalf("begun: the short one %v, the first of the long ones %v", second.Subs.At(0).Open, first.Subs.At(0).Open)
	}
}

// A topic's namespace turns durable while a subscription to it waits for its turn: nobody told that
// of a log, and it has what comes live of the topic from then on, wherever the log stands.
func TestATopicTurnsDurableWhileItsSubscriptionWaits(t *testing.T) {
	for _, old := range []int{0, 3} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("log of %d, waits %v", old, waits), func(t *testing.T) {
				w := newWorld(t, Limits{})
				first, c := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
				if waits { // for the other one's slice, behind which live messages come first
					first.kept = frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
					first.feed()
				}
				c.kept = frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "talk"})
				c.asked[1] = &wirev1.Subscribe{Id: 1, Filter: "talk"}
				c.feed()
				w.mesh.Append("talk", payloads(0, old)...)
				w.mesh.Send("talk", "a", "b")
				w.settle()
				c.expect("Subscribed 1 head=0", fmt.Sprint("talk/", old+1), fmt.Sprint("talk/", old+2))
				w.mesh.Send("talk", "c")
				c.expect(fmt.Sprint("talk/", old+3))
				if n := len(w.h.starter.firsts); n != 0 {
					t.Errorf("%d topics are remembered", n)
				}
			})
		}
	}
}

// Messages come live while subscriptions begin, slice by slice, in any order with others that end,
// and with connections that close: whatever a subscription is to have it gets once and in order.
func TestNothingSlipsBetweenWhileSubscriptionsBegin(t *testing.T) {
	tt := t
	rapid.Check(t, func(t *rapid.T) {
		const topics = 40
		w := newWorld(t, Limits{QueueMessages: 10_000})
		name := func() string { return fmt.Sprintf("room/%d", rapid.IntRange(0, topics+9).Draw(t, "topic")) }
		sent := map[string]uint64{}
		publish := func(live bool) {
			n := name()
			msgs := w.mesh.Append(n, payloads(0, rapid.IntRange(1, 3).Draw(t, "run"))...)
			if sent[n] += uint64(len(msgs)); live {
				w.mesh.Live(msgs...)
			}
		}
		for i := range topics {
			n := fmt.Sprintf("room/%d", i)
			sent[n] += uint64(len(w.mesh.Append(n, "first")))
		}
		var all []*follower
		for range rapid.IntRange(1, 3).Draw(t, "connections") {
			all = append(all, &follower{client: w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ReceiveWindow: 5000}), next: map[string]uint64{}})
		}
		subscribe := func(f *follower) {
			m := &wirev1.Subscribe{Id: rapid.Uint32Range(1, 4).Draw(t, "sub"), Filter: "room/+"}
			if f.w.h.conns.Get(f.slot).SubByID(m.GetId()) != nil {
				return
			}
			switch m.GetId() {
			case 1:
				m.Filter = "room/0"
			case 2:
			case 3, 4:
				m.Start = wirev1.Start_START_EARLIEST
			}
			f.asked[m.GetId()] = m
			delete(f.over, m.GetId())
			f.kept = append(f.kept, frameOf(tt, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)...)
			f.feed() // and no work is done yet
		}
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			f := all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0, 1, 2:
				publish(true)
			case 3, 4:
				subscribe(f)
			case 5, 6, 7:
				mail := w.mail
				w.mail = nil
				for _, e := range mail {
					w.h.Event(e)
				}
				w.h.Work(rapid.IntRange(1, 80).Draw(t, "units"))
			case 8:
				w.settle()
				f.check(w)
			case 9:
				if id := rapid.Uint32Range(3, 4).Draw(t, "ends"); f.w.h.conns.Get(f.slot).SubByID(id) != nil && !f.w.h.conns.Get(f.slot).SubByID(id).Dead {
					f.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id})
					f.check(w)
					for n := range sent {
						delete(f.next, key(id, n))
					}
				}
			}
		}
		for range 50 {
			w.settle()
		}
		for _, f := range all {
			f.check(w)
			c := w.h.conns.Get(f.slot)
			for n, last := range sent {
				for id := uint32(3); id <= 4; id++ {
					if s := c.SubByID(id); s != nil && f.next[key(id, n)] != last+1 {
						t.Fatalf("subscription %d is at %d of %d in %s", id, f.next[key(id, n)], last+1, n)
					}
				}
				if c.SubByID(2) != nil && f.next[key(0, n)] != last+1 {
					t.Fatalf("plain subscriptions are at %d of %d in %s", f.next[key(0, n)], last+1, n)
				}
			}
		}
	})
}
