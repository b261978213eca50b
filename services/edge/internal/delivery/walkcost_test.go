package delivery

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/frames"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// walked is a hub whose one connection has long lists of everything that is walked over.
type walked struct {
	h *Hub
	c *state.Conn
	g *state.Member
}

const (
	walkedItems = 512 // in the queue, by each kind
	walkedSubs  = 64
)

// newWalked makes one with a track of its own at room/1 (ACKed), a plain one at room/2, a member
// with messages that were sent and that wait, and many subscriptions.
func newWalked(t *testing.T) *walked {
	t.Helper()
	mesh := &teller{}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, Limits: Limits{QueueMessages: 1 << 20}})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ReceiveWindow: 1 << 16}), 1)
	w := &walked{h: h, c: h.conns.Get(slot)}
	sub := func(m *wirev1.Subscribe) {
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m), 1)
		for h.Work(4096) {
		}
	}
	sub(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true})
	sub(&wirev1.Subscribe{Id: 2, Filter: "room/2", Overflow: wirev1.Overflow_OVERFLOW_DROP_OLDEST})
	sub(&wirev1.Subscribe{Id: 3, Filter: "note/1", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE})
	sub(&wirev1.Subscribe{Id: 4, Filter: "room/9", Group: "g", Ack: true})
	for i := range walkedSubs {
		sub(&wirev1.Subscribe{Id: uint32(100 + i), Filter: "room/1", Ack: true})
	}
	w.g = w.c.Groups[0]
	h.Event(exchange.GroupJoined{Conn: h.handle(w.c), Sub: w.g.Ref})
	w.assign(1)
	w.live("room/1", 1)
	(&flusher{h: h}).flush() // with the client, un-ACKed
	w.assign(walkedItems + 1)
	w.live("room/1", walkedItems+1)
	w.live("room/2", 1)
	return w
}

// live brings walkedItems messages of a topic, no two of which make a run.
func (w *walked) live(name string, from int) {
	for i := range walkedItems {
		w.h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode(name, upstreamtest.BaseEpoch, uint64(from+i), "x")}})
	}
	for w.h.Work(4096) {
	}
}

func (w *walked) assign(from int) {
	a := exchange.Assigned{Conn: w.h.handle(w.c), Sub: w.g.Ref, Attempts: make([]uint32, walkedItems)}
	for i := range walkedItems {
		a.Messages = append(a.Messages, upstreamtest.Encode("room/9", upstreamtest.BaseEpoch, uint64(from+i), "x"))
	}
	w.h.groups.assigned(w.c, a)
}

// at is the connection's track at a topic.
func (w *walked) at(name string) *state.Track {
	for _, t := range w.c.Tracks.All() {
		if t.Topic.Name() == name {
			return t
		}
	}
	return nil
}

// Whoever has many items in a queue, a window or a list has each walk over them count for the slice
// that it is a part of: otherwise one client's long lists would keep its whole loop busy. No walk
// counts for much more than it is, or others would wait for nothing.
func TestEachWalkCounts(t *testing.T) {
	last := func(w *walked) *sendq.Item { return w.c.Out.At(w.c.Out.Len() - 1) }
	fresh := func(name string, priority uint8) *sendq.Item {
		m := upstreamtest.Encode(name, 0, 0, "x")
		m.Priority = priority
		it := sendq.Delivery(m, nil, false, 0)
		return &it
	}
	for what, one := range map[string]struct {
		items int
		do    func(w *walked)
	}{
		"an ACK in a group": {walkedItems, func(w *walked) {
			w.h.groups.ackEntry(w.c, &ackEntry{AckEntry: frames.AckEntry{Topic: []byte("room/9"), Seq: walkedItems, Sub: w.g.ID}})
		}},
		"a NACK in a group": {walkedItems, func(w *walked) {
			w.h.groups.nack(w.g, &wirev1.Nack{Topic: "room/9", Seq: walkedItems})
		}},
		"a pause of a group":          {walkedItems, func(w *walked) { w.h.groups.pause(w.g) }},
		"what waits in a group":       {walkedItems, func(w *walked) { w.h.groups.handOn(w.g, 1) }},
		"what a member does not read": {walkedItems, func(w *walked) { w.h.groups.recall(w.g) }},
		"the end of a membership":     {4 * walkedItems, func(w *walked) { w.h.groups.leave(w.g) }},
		"an assignment":               {walkedItems * itemsPerUnit, func(w *walked) { w.assign(2*walkedItems + 1) }},
		"an ACK of what had timed out": {walkedItems, func(w *walked) {
			win := w.at("room/1").Win
			for seq := range uint64(walkedItems) {
				win.Park(1<<30 + seq)
			}
			w.h.acks.parked(w.at("room/1"), 1<<30, false)
		}},
		"the end of a window":                 {2 * walkedItems, func(w *walked) { w.h.windows.drop(w.at("room/1")) }},
		"a redelivery that is taken back":     {2 * walkedItems, func(w *walked) { w.h.windows.killAgain(w.at("room/1"), 1) }},
		"a track that steps back":             {3 * walkedItems, func(w *walked) { w.h.purge(w.at("room/2"), false) }},
		"the end of a track":                  {3 * walkedItems, func(w *walked) { w.h.purge(w.at("room/2"), true) }},
		"last words":                          {3 * walkedItems, func(w *walked) { w.c.Out.KeepAnswers() }},
		"a cut":                               {3 * walkedItems, func(w *walked) { w.h.cut(w.c, wirev1.Code_CODE_MEMORY_BUDGET, "") }},
		"a payment":                           {(3*3 + 2*itemsPerUnit - 1) * walkedItems, func(w *walked) { w.h.trim(w.c) }},
		"what is given back to a group":       {walkedItems * itemsPerUnit, func(w *walked) { w.h.trimDurable(w.c, 0) }},
		"what is paid by dropping the oldest": {walkedItems * itemsPerUnit, func(w *walked) { w.h.trimOldest(w.c, 0) }},
		"room for one more": {2 * walkedItems, func(w *walked) {
			w.h.gaps.dropOldest(w.at("room/2"), upstreamtest.Encode("room/2", upstreamtest.BaseEpoch, walkedItems+1, "x"), wirev1.Code_CODE_QUEUE_FULL)
		}},
		"a newest message that finds no other": {3 * walkedItems, func(w *walked) {
			w.c.Out.Replace(fresh("note/1", 0))
		}},
		"a newest message in the place of another": {3 * walkedItems, func(w *walked) {
			w.h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("note/1", 0, 0, "x")}})
			for w.h.Work(4096) {
			}
			w.h.cost.Items = 0
			w.c.Out.Replace(last(w))
		}},
		"the oldest where some were overtaken": {3 * walkedItems, func(w *walked) {
			w.h.push(w.c, fresh("room/3", 9)) // overtakes
			w.h.cost.Items = 0
			w.c.Out.DropOldestEphemeral()
		}},
		"one that overtakes all others": {2 * walkedItems, func(w *walked) {
			w.h.push(w.c, fresh("room/3", 9))
		}},
		"what subscriptions ask for together": {walkedSubs, func(w *walked) { w.h.tracks.Combine(w.at("room/1")) }},
		"who of many wants a message": {walkedSubs, func(w *walked) {
			tr := w.at("room/1")
			tr.Kind = state.KindOwn
			w.h.tracks.Judge(tr, upstreamtest.Encode("room/1", 0, 0, "x"))
		}},
		"the members of a session": {walkedSubs, func(w *walked) {
			s := w.c.Subs.At(0)
			s.Kind = state.KindSession
			w.h.fan.sharing(s, "room/1")
		}},
		"a message for many": {walkedSubs, func(w *walked) {
			var all []*state.Subscription
			for _, s := range w.c.Subs.All() {
				all = append(all, s)
			}
			w.h.fan.address(fresh("room/1", 0), all)
		}},
		"whether somebody is a member": {walkedSubs, func(w *walked) {
			w.h.rooms.presence.Since(w.h.handle(w.c), "room/1")
		}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWalked(t)
			w.h.cost.Items = 0
			one.do(w)
			if n := int(w.h.cost.Items); n < one.items || n > 8*one.items+64*itemsPerUnit {
				t.Fatalf("it counts for %d items, and walks over %d", n, one.items)
			}
		})
	}
}

// A frame counts for what is decoded of it, whatever comes of that.
func TestEntriesOfAnAckCount(t *testing.T) {
	w := newWalked(t)
	w.h.groups.leave(w.g) // whose messages would be looked through for each
	m := &wirev1.Ack{}
	for i := range 100 {
		m.Entries = append(m.Entries, &wirev1.Ack_Entry{Topic: fmt.Sprint("hall/", i), Seq: 1})
	}
	frame := frameOf(t, wirev1.FrameType_FRAME_TYPE_ACK, m)
	w.h.cost.Items = 0
	if done, ok := w.h.acks.frame(w.c, frame[wire.HeaderSize:]); !done || !ok || w.h.cost.Items < 100*entryLooks || w.h.Stats().StaleAcks != 100 {
		t.Fatalf("done %v, ok %v: 100 entries count for %d items, %d stale", done, ok, w.h.cost.Items, w.h.Stats().StaleAcks)
	}
}
