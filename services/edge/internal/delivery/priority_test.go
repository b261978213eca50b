package delivery

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

func urgent(priority uint8, all []*exchange.Message) []*exchange.Message {
	for _, m := range all {
		m.Priority = priority
	}
	return all
}

// lazy is a client with a subscription to everything under room and to talk, that takes nothing for
// now.
func (w *world) lazy(overflow wirev1.Overflow) *client {
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/#", Overflow: overflow})
	c.subscribe(&wirev1.Subscribe{Id: 2, Filter: "talk", Overflow: overflow})
	c.expect("Subscribed 1 head=0", "Subscribed 2 head=0")
	c.slow = true
	return c
}

func (c *client) reads(want ...string) {
	c.w.t.Helper()
	c.slow = false
	c.expect(want...)
	c.slow = true
}

func TestUrgentTopicsGoFirst(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	w.mesh.Live(w.mesh.Append("room/0", "a", "b")...)
	w.mesh.Live(urgent(1, upstreamtest.Run("talk", 0, 0, "c"))...)
	w.mesh.Live(urgent(5, w.mesh.Append("room/1", "d", "e"))...)
	c.reads("room/1/1", "room/1/2", "talk=c", "room/0/1", "room/0/2")
}

func TestNothingOvertakesItsTopic(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	w.mesh.Live(w.mesh.Append("room/0", "a")...)
	w.mesh.Live(w.mesh.Append("room/1", "b")...)
	w.mesh.Live(urgent(9, w.mesh.Append("room/1", "c"))...)
	w.mesh.Live(urgent(8, w.mesh.Append("room/2", "d"))...) // what is stuck holds nobody up
	c.reads("room/2/1", "room/0/1", "room/1/1", "room/1/2")
}

// An item that waits ages: a level is worth sendq.PriorityStep.
func TestWaitingMakesUrgent(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	w.mesh.Live(w.mesh.Append("room/0", "a")...)
	w.settle()
	w.pass(3*sendq.PriorityStep*time.Millisecond - time.Millisecond)
	w.mesh.Live(urgent(3, w.mesh.Append("room/1", "b"))...)
	w.settle()
	w.pass(time.Millisecond)
	w.mesh.Live(urgent(3, w.mesh.Append("room/2", "c"))...)
	c.reads("room/1/1", "room/0/1", "room/2/1")
}

// Milliseconds wrap around after seven weeks.
func TestRanksWrapAround(t *testing.T) {
	w := newWorld(t, Limits{})
	at := func(ms int64) { w.h.SetTime((1<<32+ms)*int64(time.Millisecond), wallStart) }
	at(-50)
	c := w.lazy(0)
	w.mesh.Live(w.mesh.Append("room/0", "a")...)
	w.settle()
	at(10)
	w.mesh.Live(urgent(1, w.mesh.Append("room/1", "b"))...)
	w.settle()
	at(60)
	w.mesh.Live(urgent(1, w.mesh.Append("room/2", "c"))...)
	c.reads("room/1/1", "room/0/1", "room/2/1")
}

func TestAnswersKeepTheirPlace(t *testing.T) {
	w := newWorld(t, Limits{})
	w.now = int64(30 * 24 * time.Hour)
	w.h.SetTime(w.now, wallStart)
	c := w.lazy(0)
	w.mesh.Live(w.mesh.Append("room/0", "a")...)
	w.settle()
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	w.mesh.Live(w.mesh.Append("room/1", "b")...)
	w.mesh.Live(urgent(9, w.mesh.Append("room/2", "c"))...)
	c.reads("room/0/1", "Pong 7", "room/2/1", "room/1/1")
}

// What has begun to leave goes on.
func TestUrgentWaitsForWhatHasBegun(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	w.mesh.Live(w.mesh.Append("room/0", "before")...)
	c.reads("room/0/1")
	w.mesh.Live(w.mesh.Append("room/0", "a", "b")...)
	w.settle()
	c.in = append(c.in, w.h.Gather(c.slot, nil, 0)[0][:5]...)
	w.h.Wrote(c.slot, 5)
	w.mesh.Live(urgent(9, w.mesh.Append("room/1", "c"))...)
	c.reads("room/0/2", "room/1/1", "room/0/3")
}

// A full queue drops what came first, wherever it stands.
func TestTheOldestIsDropped(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 3})
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk/#"})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	for i, p := range []uint8{0, 5, 0, 5, 5} {
		w.mesh.Live(urgent(p, upstreamtest.Run(fmt.Sprint("talk/", p), 0, 0, fmt.Sprint(i)))...)
		w.settle()
		w.pass(time.Millisecond)
	}
	c.reads("talk/5=3", "talk/5=4", "talk/0=2")
}

// arrived is a message in the order of arrival.
type arrived struct {
	topic  string
	number int
	at     int64 // milliseconds
	level  uint8
	taken  int // bytes that the client had when it was queued
	size   int
	begins int // bytes before it on the connection
}

// order is what a client is sent, and when.
type order struct {
	*client
	waiting map[int]*arrived
	came    []*arrived
	next    int
	taken   int
}

// post sends n messages to a topic.
func (o *order) post(name string, level uint8, n int) {
	texts := payloads(o.next, n)
	var all []*exchange.Message
	if name == "talk" {
		all = upstreamtest.Run(name, 0, 0, texts...)
	} else {
		all = o.w.mesh.Append(name, texts...)
	}
	for i, m := range urgent(level, all) {
		o.waiting[o.next+i] = &arrived{topic: name, number: o.next + i, at: o.w.now / 1e6, level: level, taken: o.taken, size: len(m.Frame)}
	}
	o.next += n
	o.w.mesh.Live(all...)
	o.w.settle()
}

// some takes n bytes.
func (o *order) some(t *rapid.T, n int) {
	before := o.taken
	for _, b := range o.w.h.Gather(o.slot, nil, 0) {
		b = b[:min(n, len(b))]
		o.in, n, o.taken = append(o.in, b...), n-len(b), o.taken+len(b)
	}
	o.w.h.Wrote(o.slot, o.taken-before)
	o.w.settle()
	o.decode()
	for _, fr := range o.got {
		m, ok := fr.m.(*wirev1.Message)
		number := -1
		if ok {
			_, _ = fmt.Sscan(string(m.GetPayload()), &number)
		}
		a := o.waiting[number]
		if a == nil || a.topic != m.GetTopic() {
			t.Fatalf("%s came twice or is another's", fr.text())
		}
		delete(o.waiting, number)
		if n := len(o.came); n > 0 {
			a.begins = o.came[n-1].begins + o.came[n-1].size
		}
		o.came = append(o.came, a)
	}
	o.got = nil
}

// Between topics that have one priority each the order is that of arrival less what the priority is
// worth. Whatever the priorities, nothing is overtaken by its own topic, or by what comes more than
// nine levels' worth later.
func TestOrderOfPriorities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Limits{QueueMessages: 10_000})
		o := &order{client: w.lazy(0), waiting: map[int]*arrived{}}
		mixed := rapid.Bool().Draw(t, "mixed")
		levels := map[string]uint8{}
		names := []string{"room/0", "room/1", "room/2", "talk"}
		for _, name := range names {
			levels[name] = rapid.Uint8Range(0, 9).Draw(t, "level")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1, 2:
				name := rapid.SampledFrom(names).Draw(t, "topic")
				if mixed {
					levels[name] = rapid.Uint8Range(0, 9).Draw(t, "priority")
				}
				o.post(name, levels[name], rapid.IntRange(1, 4).Draw(t, "run"))
			case 3, 4:
				o.some(t, rapid.IntRange(0, 300).Draw(t, "bytes"))
			case 5:
				w.pass(time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond)
			}
		}
		for w.h.Status(o.slot).Owes {
			o.some(t, 1<<20)
		}
		if len(o.waiting) != 0 || w.h.Stats().QueuedBytes != 0 {
			t.Fatalf("%d messages never came", len(o.waiting))
		}
		for i, a := range o.came {
			for _, b := range o.came[i+1:] {
				checkOrder(t, a, b, mixed)
			}
		}
	})
}

// checkOrder of a, which came before b.
func checkOrder(t *rapid.T, a, b *arrived, mixed bool) {
	rank := func(x *arrived) int64 { return x.at - int64(x.level)*sendq.PriorityStep }
	overtook := a.number > b.number
	switch {
	case overtook && a.topic == b.topic:
		t.Fatalf("%+v overtook %+v of its topic", a, b)
	case overtook && a.at >= b.at+9*sendq.PriorityStep:
		t.Fatalf("%+v overtook %+v that had waited", a, b)
	case mixed || a.topic == b.topic:
	case overtook && rank(a) >= rank(b):
		t.Fatalf("%+v overtook %+v that is as urgent", a, b)
	case !overtook && rank(b) < rank(a) && b.taken <= a.begins:
		t.Fatalf("%+v did not overtake %+v, which had not begun", b, a)
	}
}

func TestOvertakingMakesNoGarbage(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.lazy(0)
	low, high := upstreamtest.Run("talk", 0, 0, "a"), urgent(9, upstreamtest.Run("room/1", 0, 0, "b"))
	conn := w.h.conns.Get(c.slot)
	push := func(m *exchange.Message) {
		it := sendq.Delivery(m, nil, false, 0)
		w.h.push(conn, &it)
	}
	round := func() {
		for range 20 {
			push(low[0])
			push(high[0])
		}
		conn.Out.DropAll(1 << 20)
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Fatalf("%v allocations for 40 messages", n)
	}
}

// A message of the priority that the others have costs nothing more than the comparison; overtaking
// is in proportion to what is overtaken.
func BenchmarkPush(b *testing.B) {
	for _, x := range []struct {
		name       string
		waits, new uint8
	}{{"same", 0, 0}, {"overtakes1000", 0, 9}} {
		b.Run(x.name, func(b *testing.B) {
			w := newWorld(benchTester{b}, Limits{})
			conn := w.h.conns.Get(w.lazy(0).slot)
			low, high := urgent(x.waits, upstreamtest.Run("talk", 0, 0, "a")), urgent(x.new, upstreamtest.Run("room/1", 0, 0, "b"))
			push := func(m *exchange.Message) {
				it := sendq.Delivery(m, nil, false, 0)
				w.h.push(conn, &it)
			}
			for range 1000 {
				push(low[0])
			}
			for b.Loop() {
				push(high[0])
				conn.Out.DropAll(1)
			}
		})
	}
}

type benchTester struct{ *testing.B }
