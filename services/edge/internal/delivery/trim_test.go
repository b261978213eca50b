package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/budget"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// limited is a world whose hub shares a budget with n-1 others.
func limited(t tester, total int64, n int, lim Limits) (*world, *budget.Pool) {
	w, p := newWorld(t, lim), budget.New(total, n)
	w.h.queues = sendq.NewShared(sendq.Limits{Messages: w.h.lim.QueueMessages, Bytes: w.h.lim.QueueBytes}, p.Share(0), &w.h.cost)
	w.h.SetTime(w.h.now, w.h.wall)
	return w, p
}

// Whatever the mix of topics, policies, sizes, stuck sockets and readers: no more is there than the
// budget has, no queue is trimmed while another is larger, and what is durable comes to everyone in
// the end, once and in order.
func TestLargestQueueIsTrimmed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 1 << 20
		w, _ := limited(t, total, 1, Limits{QueueBytes: 256 << 10})
		h := w.h
		var all []*follower
		for i := range rapid.IntRange(2, 30).Draw(t, "connections") {
			c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000, ClientId: fmt.Sprint(i)})
			f := &follower{client: c, next: map[string]uint64{}}
			f.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/0", Ack: rapid.IntRange(0, 3).Draw(t, "ack") == 0})
			f.check(w)
			overflow := rapid.SampledFrom([]wirev1.Overflow{0, 0, wirev1.Overflow_OVERFLOW_CONFLATE}).Draw(t, "overflow")
			f.subscribe(&wirev1.Subscribe{Id: 2, Filter: fmt.Sprint("talk/", i%4), Overflow: overflow})
			f.take()
			f.got = nil
			f.slow = rapid.IntRange(0, 3).Draw(t, "slow") > 0
			all = append(all, f)
		}
		watchTrims(w, t)
		sent := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f := all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			switch size := rapid.SampledFrom([]int{10, 3000, 60_000}).Draw(t, "size"); rapid.IntRange(0, 6).Draw(t, "op") {
			case 0, 1:
				w.mesh.Send("room/0", strings.Repeat("d", size))
				sent++
			case 2, 3:
				w.mesh.Live(upstreamtest.Encode(fmt.Sprint("talk/", rapid.IntRange(0, 3).Draw(t, "talk")), 0, 0, strings.Repeat("e", size)))
			case 4:
				f.slow = !f.slow
			case 5:
				if f.slow && h.Gen(f.slot) == f.gen && h.Status(f.slot).Owes {
					h.Stalled(f.slot, Held{Memory: rapid.IntRange(0, 100_000).Draw(t, "kernel")})
				}
			case 6:
				w.pass(100 * time.Millisecond)
			}
			w.settle()
			h.Relieve()
			w.settle()
			if used := h.queues.Budget().Used(); used > total {
				t.Fatalf("%d bytes of %d are used", used, total)
			}
			checkBudget(t, h)
			f.checkAny(w)
		}
		w.mesh.Send("room/0", "last")
		sent++
		for _, f := range all {
			f.slow = false
		}
		level := func(f *follower) bool { return f.ended || f.next[key(0, "room/0")] == sent+1 }
		for n := uint64(0); n < 4*sent+100 && slices.ContainsFunc(all, func(f *follower) bool { return !level(f) }); n++ {
			for _, f := range all {
				if h.Gen(f.slot) == f.gen {
					h.StallEnded(f.slot)
				}
				w.settle()
				f.checkAny(w)
				f.ackAll()
			}
			w.pass(Tick)
		}
		for i, f := range all {
			if !level(f) {
				t.Fatalf("connection %d is at %d of %d", i, f.next[key(0, "room/0")], sent)
			}
		}
		for _, f := range all {
			if !f.ended && h.Gen(f.slot) == f.gen {
				h.Gone(f.slot)
			}
		}
		w.settle()
		if h.queues.Budget().Used() != 0 || h.queues.InUse() != 0 {
			t.Fatalf("%d bytes are used by %d connections in the end", h.queues.Budget().Used(), h.queues.InUse())
		}
	})
}

// Where the edge has no memory left for others, the largest queue with DROP_OLDEST loses its oldest
// messages, each of which is named, and keeps its connection.
func TestDropOldestIsTrimmedToNamedHoles(t *testing.T) {
	const total, size, n = 256 << 10, 10_000, 20
	w, _ := limited(t, total, 1, Limits{QueueBytes: 64 << 20, QueueMessages: 10_000})
	c, other := w.connect(&wirev1.Hello{HeartbeatMs: 600_000}), w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Overflow: wirev1.Overflow_OVERFLOW_DROP_OLDEST})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/2", Overflow: wirev1.Overflow_OVERFLOW_DROP_OLDEST})
	c.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
	other.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk/1"})
	other.expect("Subscribed 1 head=0")
	c.slow, other.slow = true, true
	for i := range n { // all of it has room
		w.mesh.Send(fmt.Sprint("room/", 1+i/2%2), strings.Repeat("x", size))
		w.settle()
	}
	if drops := w.h.Stats().Drops; drops != (counters.ByCode{}) {
		t.Fatalf("dropped: %v", drops)
	}
	for range 8 {
		w.mesh.Live(upstreamtest.Encode("talk/1", 0, 0, strings.Repeat("e", size)))
		w.settle()
		if used := w.h.queues.Budget().Used(); used > total {
			t.Fatalf("%d bytes of %d are used", used, total)
		}
		checkBudget(t, w.h)
	}
	if s := w.h.Stats(); s.Trims == 0 || s.Closes != (counters.ByCode{}) {
		t.Fatalf("%d trims, closes %v", s.Trims, s.Closes)
	}
	c.slow, other.slow = false, false
	if other.take(); len(other.got) != 8 {
		t.Errorf("who owed little got %d", len(other.got))
	}
	came, named := map[string]uint64{}, 0
	c.take()
	for _, f := range c.got {
		switch m := f.m.(type) {
		case *wirev1.Message:
			if m.GetSeq() != came[m.GetTopic()]+1 {
				t.Fatalf("got %s behind %d", f.text(), came[m.GetTopic()])
			}
			came[m.GetTopic()] = m.GetSeq()
		case *wirev1.Progress:
			if m.GetFrom() != came[m.GetTopic()]+1 || m.GetTo() < m.GetFrom() || m.GetCode() != wirev1.Code_CODE_MEMORY_BUDGET {
				t.Fatalf("got %s behind %d", f.text(), came[m.GetTopic()])
			}
			came[m.GetTopic()] = m.GetTo()
			named += int(m.GetTo() - m.GetFrom() + 1)
		}
	}
	if came["room/1"] != n/2 || came["room/2"] != n/2 || named < n/3 || named > 2*n/3 {
		t.Fatalf("it has come to %v, and was named %d", came, named)
	}
	if drops := w.h.Stats().Drops[wirev1.Code_CODE_MEMORY_BUDGET]; drops != uint64(named) {
		t.Fatalf("%d drops are counted of %d", drops, named)
	}
}

// checkAny is check where ephemeral messages may come, and connections may end.
func (f *follower) checkAny(w *world) {
	if f.ended || w.h.Gen(f.slot) != f.gen || w.h.Status(f.slot).Closing {
		f.ended = true
		return
	}
	f.check(w)
}

// watchTrims fails where a queue is trimmed that is smaller than another, by more than a class.
func watchTrims(w *world, t tester) {
	h := w.h
	h.trimming = func(c *state.Conn) {
		owed := c.Out.Held()
		for slot := range h.conns.Len() {
			if o := h.conns.Get(slot); o.Out.Held() > owed+owed/8 && o.Out.Held() >= 2<<10 {
				t.Fatalf("a queue of %d bytes is trimmed, another has %d", owed, o.Out.Held())
			}
		}
	}
}

// checkBudget compares what is counted with what is there.
func checkBudget(t tester, h *Hub) {
	var used int64
	queues := 0
	for slot := range h.conns.Len() {
		if c := h.conns.Get(slot); !c.Out.IsEmpty() {
			queues++
			used += int64(c.Out.Held())
		}
	}
	if used != h.queues.Budget().Used() || queues != h.queues.InUse() {
		t.Fatalf("%d bytes are used by %d queues, counted are %d of %d", used, queues, h.queues.Budget().Used(), h.queues.InUse())
	}
}

// A subscription that waits for room in the queue goes on where that was trimmed, though nothing
// is left in it that could leave and wake it.
func TestWhoWaitsGoesOnWhereTheQueueWasTrimmed(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 8})
	w.mesh.Append("room/1", "a", "b")
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	w.mesh.Away("room/1", true)
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "note/1"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/1", Start: wirev1.Start_START_EARLIEST})
	c.texts()
	c.slow = true
	large := string(make([]byte, 20<<10))
	w.mesh.Live(upstreamtest.Encode("note/1", 0, 0, large), upstreamtest.Encode("note/1", 0, 0, large))
	w.mesh.Away("room/1", false)
	w.pass(time.Second)
	at := w.h.conns.Get(c.slot)
	if at.Waiting != 1 || at.Out.Messages() != 2 {
		t.Fatalf("%d wait for room, %d messages are queued", at.Waiting, at.Out.Messages())
	}
	w.h.trim(at)
	if at.Out.Len() != 0 {
		t.Fatalf("%d items are left", at.Out.Len())
	}
	c.slow = false
	if got := c.texts(); len(got) != 2 || got[0] != "room/1/1 subs=[2]" {
		t.Errorf("got %v", got)
	}
}

// A queue of which everything was dropped is empty: its loop has nothing to do while the log can't
// be read.
func TestAQueueOfWhichAllWasDroppedIsEmpty(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 4})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=0")
	w.mesh.Send("room/1", "named")
	c.take()
	w.mesh.CloseStore(true)
	c.slow = true
	for range 6 {
		w.mesh.Send("room/1", "x")
		w.settle()
	}
	if s := w.h.Stats(); s.Behind != 1 || s.QueuedBytes != 0 {
		t.Fatalf("%d fell behind, %d bytes are queued", s.Behind, s.QueuedBytes)
	}
	if n := len(w.h.Gather(c.slot, nil, 0)); n != 0 || w.h.Status(c.slot).Owes {
		t.Fatalf("%d pieces to be sent, owes %v", n, w.h.Status(c.slot).Owes)
	}
}
