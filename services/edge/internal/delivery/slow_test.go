package delivery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/report"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/lag"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// talks is a client with an ephemeral subscription in a world that tells of slow consumers; queues
// take 100 messages.
func talks(t *testing.T) (*world, *client, *eventring.Ring) {
	w := newWorld(t, Limits{QueueMessages: 100})
	r := w.tell(events.SlowConsumer)
	c := w.connect(&wirev1.Hello{ClientId: "ann-1"})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	return w, c, r
}

func (w *world) say(n int) {
	for range n {
		w.mesh.Live(upstreamtest.Encode("talk", 0, 0, "x"))
	}
	w.settle()
}

// expectSlow takes what was told of slow consumers.
func expectSlow(t *testing.T, r *eventring.Ring, want ...string) {
	t.Helper()
	var got []string
	for e, ok := r.Take(); ok; e, ok = r.Take() {
		got = append(got, fmt.Sprintf("%s %d%% %d", e.ClientID, e.Code, e.Epoch))
		if e.Kind != events.SlowConsumer || e.Seq == 0 {
			t.Errorf("%+v", e)
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Fatalf("told %q, want %q", got, want)
	}
}

func TestDepthIsToldBeforeAnythingIsLost(t *testing.T) {
	w, c, r := talks(t)
	w.say(60)
	expectSlow(t, r) // its socket is not stuck: it may take all of that at once
	w.h.Stalled(c.slot, Held{Memory: 4000})
	expectSlow(t, r, "ann-1 50% 60")
	w.say(19)
	expectSlow(t, r)
	w.say(1)
	expectSlow(t, r, "ann-1 80% 80")
	if s := w.h.Stats(); s.Drops[wirev1.Code_CODE_QUEUE_FULL] != 0 {
		t.Fatal("something was lost before it was told of")
	}
	w.say(50)
	expectSlow(t, r)
	take := func() {
		w.h.StallEnded(c.slot)
		c.slow = false
		c.take()
		c.slow = true
		w.settle()
	}
	take()
	w.say(90)
	w.h.Stalled(c.slot, Held{Memory: 4000})
	expectSlow(t, r)
	if n := w.h.Stats().HeldBack; n != 1 {
		t.Fatalf("%d crossings were held back", n)
	}
	take()
	w.pass(report.SlowEvery + time.Second)
	w.h.Relieve()
	w.say(90)
	w.h.Stalled(c.slot, Held{Memory: 4000})
	expectSlow(t, r, "ann-1 80% 90")
}

func TestALevelIsToldAgainOnceTheQueueWasBelowHalfOfIt(t *testing.T) {
	w, c, r := talks(t)
	o := func() *sendq.Queue { return &w.h.conns.Get(c.slot).Out }
	w.say(55)
	w.h.Stalled(c.slot, Held{Memory: 4000})
	for _, step := range []struct {
		drop int
		say  int
		told string
	}{{20, 20, ""}, {31, 31, "ann-1 50% 55"}} {
		w.pass(report.SlowEvery + time.Second)
		w.h.Relieve()
		expectSlowAny(r)
		for range step.drop {
			o().DropOldestEphemeral()
		}
		w.h.Stalled(c.slot, Held{Memory: 4000})
		w.say(step.say)
		var want []string
		if step.told != "" {
			want = append(want, step.told)
			if o().Messages() != 55 {
				t.Fatalf("%d messages", o().Messages())
			}
			want[0] = "ann-1 50% 50"
		}
		expectSlow(t, r, want...)
	}
}

func expectSlowAny(r *eventring.Ring) {
	for _, ok := r.Take(); ok; _, ok = r.Take() {
	}
}

// A crowd that falls behind together is told of as far as the bound goes, and the rest is counted.
func TestCrossingsAreBounded(t *testing.T) {
	w, _, r := talks(t)
	for i := range report.SlowMost + 20 {
		c := w.connect(&wirev1.Hello{ClientId: fmt.Sprint(i)})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
		c.slow = true
		w.h.Work(1000)
		c.got = nil
	}
	w.say(60)
	for slot := range w.h.conns.Len() {
		w.h.Stalled(slot, Held{Memory: 4000})
	}
	n := 0
	for _, ok := r.Take(); ok; _, ok = r.Take() {
		n++
	}
	if s := w.h.Stats(); n != report.SlowMost || s.HeldBack != 21 || s.Stalled != report.SlowMost+21 || s.QueuesBySize[0] != s.Stalled || s.KernelBytes != 4000*s.Stalled {
		t.Fatalf("%d were told of, %d held back; %d are stuck, %d owe, the kernel holds %d", n, s.HeldBack, s.Stalled, s.QueuesBySize[0], s.KernelBytes)
	}
}

func TestLagOfThoseThatWait(t *testing.T) {
	w := newWorld(t, Limits{QueueMessages: 8})
	c := w.connect(&wirev1.Hello{})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	look := func() counters.Stats {
		w.pass(lag.Every + Tick)
		w.h.Relieve()
		w.settle()
		return w.h.Stats()
	}
	for range 1000 {
		w.mesh.Send("room/1", "x")
	}
	w.settle()
	if s := look(); s.BehindNow != 1 || s.Lag < 990 || s.Lag > 1000 || s.LongestLag != s.Lag {
		t.Fatalf("%d behind by %d, one by %d", s.BehindNow, s.Lag, s.LongestLag)
	}
	c.slow = false
	for range 1000 {
		c.take()
		w.settle()
	}
	if s := look(); s.BehindNow != 0 || s.Lag != 0 || s.LongestLag != 0 || s.Resumed == 0 {
		t.Fatalf("%d behind by %d, one by %d", s.BehindNow, s.Lag, s.LongestLag)
	}
}
