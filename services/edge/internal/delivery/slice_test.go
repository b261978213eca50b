package delivery

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// many answers Join of a filter with wildcards with so many heads.
type many struct {
	still
	heads int
}

func (m *many) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	e := exchange.Joined{Conn: conn, Sub: sub}
	for i := range m.heads {
		e.Heads = append(e.Heads, exchange.Head{Topic: fmt.Sprintf("room/%d", i), Epoch: upstreamtest.BaseEpoch, Oldest: 1})
	}
	m.h.Event(e)
}

func frameOf(t testing.TB, ft wirev1.FrameType, m proto.Message) []byte {
	t.Helper()
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// steps counts the smallest slices of work until nothing is left.
func steps(h *Hub) (n int) {
	for n = 1; h.Work(1); n++ {
	}
	return n
}

func TestSubscriptionWithManyTopicsBeginsInSlices(t *testing.T) {
	mesh := &many{heads: 1000}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true}), 1)
	if n := steps(h); n < 2*1000/teardownSlice {
		t.Fatalf("1,000 topics began in %d slices", n)
	}
	if n := h.conns.Get(slot).Tracks.Len(); n != 1000 {
		t.Fatalf("%d topics", n)
	}
}

func TestCountIsSlicedAndExact(t *testing.T) {
	const n = 5000
	h, _ := crowd(t, n, &wirev1.Subscribe{})
	var got [2][]uint64
	for i := range got {
		h.Event(exchange.Count{Topics: []string{"room/1", "room/2"}, Reply: func(counts []uint64) { got[i] = counts }})
	}
	if s := steps(h); s < 2*n/fanSlice {
		t.Fatalf("%d subscribers were counted twice in %d slices", n, s)
	}
	for _, counts := range got {
		if len(counts) != 2 || counts[0] != n || counts[1] != 0 {
			t.Fatalf("counted %v", counts)
		}
	}
}

// Unsubscribing everything costs about as much for each subscription whether there are few or many.
func TestUnsubscribingManyStaysLinear(t *testing.T) {
	const conns, subs = 10, 1000
	mesh := &still{}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	var slots []uint32
	for range conns {
		slot, _ := h.Open()
		slots = append(slots, slot)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		for i := range subs {
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: fmt.Sprintf("room/%d", i)}), 1)
		}
	}
	for h.Work(4096) {
	}
	if got := h.Stats().Subscriptions; got != conns*subs {
		t.Fatalf("%d subscriptions", got)
	}
	f := &flusher{h: h}
	f.flush()
	for _, slot := range slots {
		for i := range subs {
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: uint32(i + 1)}), 1)
		}
	}
	n := steps(h)
	if n < conns*subs/2 || n > 2*conns*subs {
		t.Fatalf("%d subscriptions ended in %d slices, want about one each", conns*subs, n)
	}
	if got := h.Stats(); got.Subscriptions != 0 || got.Topics != 0 {
		t.Fatalf("%d subscriptions and %d topics are left", got.Subscriptions, got.Topics)
	}
	if used := h.subs.Slab.Taken() + h.tracks.Slab.Taken() + h.tracks.Mores.Taken() + h.starter.pendings.Taken() + h.conns.Mores.Taken(); used != 0 {
		t.Fatalf("%d pieces of subscriptions that ended are left", used)
	}
}

// leaves counts what is left, beside answering Join.
type leaves struct {
	still
	n int
}

func (l *leaves) Leave(uint16, string) { l.n++ }

// Ten thousand filters of one connection that end at once, by Unsubscribe or with the connection,
// are taken apart a few at a time.
func TestTenThousandFiltersEndInSlices(t *testing.T) {
	const subs, budget = 10_000, 2048
	for _, end := range []string{"unsubscribe", "disconnect"} {
		mesh := &leaves{}
		h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, Limits: Limits{Subscriptions: subs}})
		mesh.h = h
		h.SetTime(1, wallStart)
		slot, _ := h.Open()
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		f := &flusher{h: h}
		for i := range subs {
			filter := fmt.Sprintf("room/%d", i)
			if i%2 == 0 {
				filter = fmt.Sprintf("room/+/%d", i)
			}
			subscribe := &wirev1.Subscribe{Id: uint32(i + 1), Filter: filter}
			if i%16 > 1 {
				// live ones look at all others as they begin, which is not what this is about
				subscribe.Start = wirev1.Start_START_EARLIEST
			}
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, subscribe), 1)
			for h.Work(budget) {
			}
			f.flush()
		}
		if got := h.Stats().Subscriptions; got != subs {
			t.Fatalf("%d subscriptions", got)
		}
		most := budget / 64 // what Work counts for one that ends
		if end == "unsubscribe" {
			for i := range subs {
				h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: uint32(i + 1)}), 1)
			}
		} else {
			h.Gone(slot)
			most *= teardownSlice
		}
		for turns := 1; ; turns++ {
			before := mesh.n
			more := h.Work(budget)
			if n := mesh.n - before; n > most {
				t.Fatalf("%s: %d filters ended in one call of Work, want %d at most", end, n, most)
			}
			if !more {
				break
			}
			f.flush()
		}
		if got := h.Stats(); got.Subscriptions != 0 || got.Topics != 0 || h.wildcards.index.Len() != 0 || mesh.n != subs {
			t.Fatalf("%s: %d subscriptions, %d topics, %d filters are left, %d were given up", end, got.Subscriptions, got.Topics, h.wildcards.index.Len(), mesh.n)
		}
	}
}

// A burst of timers is cut by what it costs, not by connections.
func TestTimersOfManyTopicsAreSliced(t *testing.T) {
	mesh := &many{heads: 1000}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 1000})
	subscribe := frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true})
	for range 50 {
		slot, _ := h.Open()
		h.Feed(slot, hello, 1)
		h.Feed(slot, subscribe, 1)
		for h.Work(4096) {
		}
		c := h.conns.Get(slot)
		h.SetTime(2_000_000_000, wallStart)
		c.Heard = h.ms
		h.SetTime(1, wallStart)
	}
	h.SetTime(2_600_000_000, wallStart)
	turns := 1
	for h.Tick(512) {
		turns++
	}
	if most := 512*2/timerSlice + 1; turns < 50/most {
		t.Fatalf("50 connections with 1,000 topics each were fired in %d turns", turns)
	}
	if n := steps(h); n < 50*(1000/timerSlice-1) {
		t.Fatalf("50 connections with 1,000 topics each were looked at in %d slices", n)
	}
}

// What is due in a connection with many topics, or in a deep window, is done a slice at a time, and
// all of it once.
func TestManyTimersOfOneConnectionAreSliced(t *testing.T) {
	const n = 1000
	cases := [2]func() (*Hub, uint32){
		func() (*Hub, uint32) {
			h, _, slot := durableSession(t, n)
			return h, slot
		},
		func() (*Hub, uint32) {
			h, _, slot := durableSession(t, 1)
			h.conns.Get(slot).Window = n
			for i := range n - 1 {
				m := upstreamtest.Encode("room/0", upstreamtest.BaseEpoch, uint64(i+2), "hello")
				h.Event(exchange.Live{Messages: []*exchange.Message{m}})
				for h.Work(4096) {
				}
				(&flusher{h: h}).flush()
			}
			return h, slot
		},
	}
	for i, begin := range cases {
		h, slot := begin()
		c := h.conns.Get(slot)
		if c.Unacked != n {
			t.Fatalf("%d: %d messages are not ACKed", i, c.Unacked)
		}
		due := h.now + int64(h.topics.Policy(c.Tracks.At(0).Topic).AckTimeout)
		h.SetTime(due+int64(Tick), wallStart)
		c.Heard = h.ms
		pass := func(what string, f func() bool) {
			for more := true; more; {
				before := c.Out.Messages()
				more = f()
				if again := c.Out.Messages() - before; again > timerSlice {
					t.Fatalf("%d: %d messages came due in one go of %s", i, again, what)
				}
			}
		}
		pass("Tick", func() bool { return h.Tick(512) })
		if c.Out.Messages() == n || !c.Visited {
			t.Fatalf("%d: Tick did all", i)
		}
		pass("Work", func() bool { return h.Work(1) })
		if c.Out.Messages() != n || c.Visited {
			t.Fatalf("%d: %d of %d messages go out again", i, c.Out.Messages(), n)
		}
		(&flusher{h: h}).flush()
		h.SetTime(h.now+int64(Tick), wallStart)
		pass("Tick", func() bool { return h.Tick(512) })
		pass("Work", func() bool { return h.Work(1) })
		if c.Out.Len() != 0 {
			t.Fatalf("%d: %d messages go out a third time at once", i, c.Out.Len())
		}
		h.SetTime(h.now+due, wallStart)
		c.Heard = h.ms
		pass("Tick", func() bool { return h.Tick(512) })
		pass("Work", func() bool { return h.Work(1) })
		if c.Out.Messages() != n {
			t.Fatalf("%d: the next time, %d of %d messages are due", i, c.Out.Messages(), n)
		}
	}
}
