package delivery

import (
	"fmt"
	"maps"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/departure"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// keeper holds one session, and counts what it is handed.
type keeper struct {
	many
	floors   map[string]uint64
	saves    int
	cursors  int
	detached int
	parted   int // filters
}

func (k *keeper) Attach(conn exchange.Conn, _, _ string, _ uint32, _ uint64, _ string) {
	k.h.Event(exchange.Attached{Conn: conn, Generation: 1})
}

func (k *keeper) Save(conn exchange.Conn, ref uint32, w *meshv1.SessionWrite, _ bool) {
	if k.detached > 0 {
		panic("something is saved after the hold has ended")
	}
	k.saves++
	k.cursors += len(w.GetCursors())
	for _, cur := range w.GetCursors() {
		k.floors[cur.GetTopic()] = cur.GetFloor()
	}
	for _, name := range w.GetRemoveTopics() {
		delete(k.floors, name)
	}
	k.parted += len(w.GetRemoveFilters())
	if w.GetDetach() {
		k.detached++
	}
	if ref > 0 && ref != detachRef {
		k.h.Event(exchange.Saved{Conn: conn, Ref: ref})
	}
}

// durableSession is a connection whose session has so many topics, and was sent one message of
// each.
func durableSession(t *testing.T, topics int) (h *Hub, k *keeper, slot uint32) {
	t.Helper()
	k = &keeper{many: many{heads: topics}, floors: map[string]uint64{}}
	h = newHub(t, Config{Mesh: k, PolicyFor: policy.NewTable(nil).For, Limits: Limits{WildcardTopics: topics, QueueMessages: topics + 1}})
	k.h = h
	h.SetTime(1, wallStart)
	slot, _ = h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{
		Version: 1, ClientId: "ann", Session: "inbox", ReceiveWindow: uint32(topics + 1),
	}), 1)
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{
		Id: 1, Filter: "room/+", Ack: true, Start: wirev1.Start_START_SESSION,
	}), 1)
	for h.Work(4096) {
	}
	f := &flusher{h: h}
	for i := range topics {
		m := upstreamtest.Encode(fmt.Sprintf("room/%d", i), upstreamtest.BaseEpoch, 1, "hello")
		h.Event(exchange.Live{Messages: []*exchange.Message{m}})
	}
	for h.Work(4096) {
	}
	f.flush()
	if n := h.conns.Get(slot).Unacked; int(n) != topics {
		t.Fatalf("%d of %d messages were sent", n, topics)
	}
	return h, k, slot
}

func ackTopics(t *testing.T, h *Hub, slot uint32, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{
			Entries: []*wirev1.Ack_Entry{{Topic: fmt.Sprintf("room/%d", i), Seq: 1}},
		}), 1)
	}
}

// Whatever of a session's topics was ACKed when its connection ends is handed in, a few cursors at
// a time, and the last of them end the hold.
func TestLastPositionsAreHandedInInSlices(t *testing.T) {
	const topics, acked = 3000, 2000
	for _, end := range []string{"gone", "drain"} {
		h, k, slot := durableSession(t, topics)
		clear(k.floors)
		ackTopics(t, h, slot, 0, acked)
		k.saves, k.cursors = 0, 0
		if end == "gone" {
			h.Gone(slot)
		} else {
			h.Event(exchange.Drain{DeadlineMS: 60_000})
			for h.Work(4096) {
			}
			(&flusher{h: h}).flush()
			h.SetTime(1+int64(departure.Patience)+2*int64(Tick), wallStart)
			for h.Tick(1 << 20) {
			}
		}
		for more := true; more; {
			before := k.cursors
			more = h.Work(1)
			if n := k.cursors - before; n > saveSlice {
				t.Fatalf("%s: %d cursors were handed in in one slice", end, n)
			}
		}
		if k.detached != 1 || k.cursors != topics {
			// those with something un-ACKed tell how often it was sent
			t.Fatalf("%s: %d cursors were handed in with %d saves, the hold ended %d times", end, k.cursors, k.saves, k.detached)
		}
		for i := range topics {
			want := uint64(0)
			if i < acked {
				want = 1
			}
			if name := fmt.Sprintf("room/%d", i); k.floors[name] != want {
				t.Fatalf("%s: the session stands at %d in %s, want %d", end, k.floors[name], name, want)
			}
		}
	}
}

// A connection that ends while its session's subscription is taken apart has handed in the ACKs of
// the tracks that are gone already.
func TestNothingAckedIsLostInTheMiddleOfUnsubscribing(t *testing.T) {
	const topics = 500
	for slices := range 2*topics/teardownSlice + 1 {
		h, k, slot := durableSession(t, topics)
		ackTopics(t, h, slot, 0, topics)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1}), 1)
		for range slices {
			h.Work(1)
		}
		unsubscribed := h.conns.Get(slot).Subs.Len() == 0
		h.Gone(slot)
		for h.Work(4096) {
		}
		floors := maps.Clone(k.floors)
		maps.DeleteFunc(floors, func(_ string, floor uint64) bool { return floor == 1 })
		switch {
		case unsubscribed && len(k.floors) != 0:
			t.Fatalf("%d topics of a filter that was dropped are left", len(k.floors))
		case len(floors) != 0:
			t.Fatalf("after %d slices: the session stands nowhere in %d topics", slices, len(floors))
		case k.parted == 0 && len(k.floors) != topics:
			t.Fatalf("after %d slices: ACKs of %d topics are lost", slices, len(floors)+topics-len(k.floors))
		}
		if k.detached != 1 {
			t.Fatalf("the hold ended %d times", k.detached)
		}
	}
}
