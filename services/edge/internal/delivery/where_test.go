package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

func TestOnlyWhatPassesComes(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Where: "payload.n > 3"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "talk", Where: "payload == 7"})
	c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "talk/+", Where: "payload == 8"})
	c.expect("Subscribed 1 head=0", "Subscribed 2 head=0", "Subscribed 3 head=0")
	w.mesh.Send("room/1", `{"n": 1}`, `{"n": 2}`, `{"n": 5}`, `no JSON`)
	w.mesh.Live(upstreamtest.Run("talk", 0, 0, "6", "7", "8")...)
	w.mesh.Live(upstreamtest.Run("talk/x", 0, 0, "7", "8")...)
	c.expect("Progress room/1 1..2 FILTERED", "room/1/3 subs=[1]", "talk=7 subs=[2]", "talk/x=8 subs=[3]")
	w.pass(gaps.Delay)
	c.expect("Progress room/1 4..4 FILTERED")
	if n := w.h.Stats().Drops[wirev1.Code_CODE_FILTERED]; n != 6 {
		t.Errorf("%d counted, want 6", n)
	}
}

// A subscription without a filter has everything beside one with a filter, and who wants a message
// is said.
func TestFiltersAreOfTheirSubscriptions(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/1", Where: "payload > 1"})
	c.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
	w.mesh.Send("room/1", "1")
	c.expect("room/1/1")
	w.mesh.Send("room/1", "2")
	c.expect("room/1/2", "Progress room/1 1..1 FILTERED", "room/1/2 subs=[2]")
}

func TestSessionsCountWhatIsFilteredAsDone(t *testing.T) {
	w := newWorld(t, Limits{})
	connect := func() *client {
		c := w.session()
		c.take()
		c.got = nil
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true, Start: wirev1.Start_START_SESSION, Where: "payload > 1"})
		return c
	}
	c := connect()
	c.expect("Subscribed 1 head=0")
	w.mesh.Send("room/1", "1", "2", "1", "3")
	c.expect("Progress room/1 1..1 FILTERED", "room/1/2 subs=[1]", "Progress room/1 3..3 FILTERED", "room/1/4 subs=[1]")
	c.ack("room/1", 2, false)
	w.h.Gone(c.slot)
	w.settle()
	w.mesh.Send("room/1", "1", "5")
	c = connect()
	c.expect("Subscribed 1 head=6", "room/1/4 attempt=1 subs=[1]", "Progress room/1 5..5 FILTERED", "room/1/6 subs=[1]")
}

// Subscriptions of one session share a cursor; each message names those that want it.
func TestASessionsFiltersAreToldApart(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.session()
	c.expect("Welcome")
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Start: wirev1.Start_START_SESSION, Where: "payload > 1"})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/+", Start: wirev1.Start_START_SESSION, Where: "payload > 2"})
	c.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
	w.mesh.Send("room/1", "1", "2", "3")
	c.expect("Progress room/1 1..1 FILTERED", "room/1/2 subs=[1]", "room/1/3 subs=[1 2]")
}

// Equal filters are one program, and none is left when nobody has it.
func TestFiltersEndWithTheirSubscriptions(t *testing.T) {
	w := newWorld(t, Limits{})
	a, b := w.connect(&wirev1.Hello{}), w.connect(&wirev1.Hello{})
	for _, c := range []*client{a, b} {
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Where: "payload > 1"})
		c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "room/2", Where: "payload > 1"})
		c.subscribe(&wirev1.Subscribe{Id: 3, Filter: "room/2", Where: "payload >"})
		c.expect("Subscribed 1 head=0", "Subscribed 2 head=0", "Error INVALID_ARGUMENT ref=3")
	}
	stats := w.mesh.Wheres.Stats()
	if p, s := stats.Programs.Load(), stats.Subscriptions.Load(); p != 1 || s != 4 {
		t.Errorf("%d programs of %d subscriptions, want 1 of 4", p, s)
	}
	a.send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 1})
	a.expect("Unsubscribed 1")
	w.h.Gone(a.slot)
	w.h.Gone(b.slot)
	w.settle()
	if p, s := stats.Programs.Load(), stats.Subscriptions.Load(); p != 0 || s != 0 {
		t.Errorf("%d programs of %d subscriptions are left", p, s)
	}
	if n := w.mesh.Wants("room/1") + w.mesh.Wants("room/2"); n != 0 {
		t.Errorf("%d joins are left", n)
	}
}

// What came before the filter was known is read, and judged then: nothing is guessed.
func TestUnjudgedMessagesAreRead(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Where: "payload > 1"})
	c.expect("Subscribed 1 head=0")
	all := w.mesh.Append("room/1", "1", "2")
	w.mesh.Wheres.Judge(all)
	for _, m := range all {
		m.Verdicts.Store(nil)
	}
	w.h.Event(exchange.Live{Messages: all})
	c.expect("Progress room/1 1..1 FILTERED", "room/1/2 subs=[1]")
}

// CONFLATE counts what passes alone: a message that is filtered takes nobody's place, and what is
// told stays in order.
func TestConflateComesAfterTheFilter(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1", Where: "payload > 1", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	w.mesh.Send("room/1", "2")
	w.mesh.Send("room/1", "3", "1")
	c.reads("room/1/1 subs=[1]", "room/1/2 subs=[1]")
	w.mesh.Send("room/1", "4", "5", "1", "6", "1", "1")
	c.reads("Progress room/1 3..3 FILTERED", "room/1/4 subs=[1]", "Progress room/1 5..5 CONFLATED", "Progress room/1 6..6 FILTERED", "room/1/7 subs=[1]")
	c.slow = false
	w.pass(gaps.Delay)
	c.expect("Progress room/1 8..9 FILTERED")
}

// Whatever is published, however slow the client is and wherever it began, it sees exactly what
// passes, in order, and every other seq in a Progress.
func TestFilteredSubscribersSeeWhatPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: 16})
		least := rapid.IntRange(0, 5).Draw(t, "least")
		sub := &wirev1.Subscribe{
			Id: 1, Filter: rapid.SampledFrom([]string{"room/1", "room/+"}).Draw(t, "filter"), Where: fmt.Sprintf("payload >= %d", least),
			Ack: rapid.Bool().Draw(t, "ack"), Start: rapid.SampledFrom([]wirev1.Start{wirev1.Start_START_LIVE, wirev1.Start_START_EARLIEST}).Draw(t, "start"),
		}
		var sent []int
		publish := func(live bool) {
			var payloads []string
			for _, v := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 40).Draw(t, "values") {
				sent = append(sent, v)
				payloads = append(payloads, fmt.Sprint(v))
			}
			if msgs := w.mesh.Append("room/1", payloads...); live {
				w.mesh.Live(msgs...)
			}
		}
		if rapid.Bool().Draw(t, "before") {
			publish(true)
		}
		from := len(sent)
		if sub.GetStart() == wirev1.Start_START_EARLIEST {
			from = 0
		}
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
		c.subscribe(sub)
		w.settle()
		c.take()
		seen, next := []int{}, uint64(from)+1
		look := func() {
			for _, f := range c.got {
				switch m := f.m.(type) {
				case *wirev1.Message:
					if m.GetSeq() != next {
						t.Fatalf("message %d comes where %d is next", m.GetSeq(), next)
					}
					seen, next = append(seen, sent[m.GetSeq()-1]), next+1
					if sub.GetAck() {
						c.ack("room/1", m.GetSeq(), false)
					}
				case *wirev1.Progress:
					if m.GetFrom() != next || m.GetCode() != wirev1.Code_CODE_FILTERED {
						t.Fatalf("%s where %d is next", f.text(), next)
					}
					next = m.GetTo() + 1
				}
			}
			c.got = nil
		}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			c.slow = rapid.Bool().Draw(t, "slow")
			publish(rapid.IntRange(0, 9).Draw(t, "lost") > 0)
			w.settle()
			c.take()
		}
		c.slow = false
		sent = append(sent, 5)
		w.mesh.Send("room/1", "5") // shows a gap that is left
		for range 40 {
			w.settle()
			c.take()
			if len(c.got) == 0 {
				w.pass(time.Second)
			}
			for len(c.got) > 0 {
				look()
				w.settle()
				c.take()
			}
		}
		want := []int{}
		for _, v := range sent[from:] {
			if v >= least {
				want = append(want, v)
			}
		}
		if !slices.Equal(seen, want) || next != uint64(len(sent))+1 {
			t.Fatalf("it saw %v up to %d, want %v up to %d", seen, next-1, want, len(sent))
		}
	})
}
