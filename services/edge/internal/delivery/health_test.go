package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
)

// health is a world with a kernel that says what it is told to.
type health struct {
	*world
	path linkhealth.Path
}

func newHealth(t *testing.T, mode linkhealth.Mode) *health {
	w := &health{world: newWorld(t, Limits{})}
	w.h.judgeLinks(mode)
	w.h.cfg.Path = func(uint32) linkhealth.Path { return w.path }
	return w
}

// beats has a client send Pings that report round trips, a heartbeat apart.
func (w *health) beats(c *client, reports ...time.Duration) {
	w.t.Helper()
	for _, d := range reports {
		w.pass(30 * time.Second)
		w.beat(c, d)
	}
}

func (w *health) beat(c *client, report time.Duration) {
	w.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{LastRttUs: uint32(report.Microseconds())})
}

const (
	quick = 50 * time.Millisecond
	slow  = 5 * time.Second
)

func TestUnhealthyConnectionIsClosed(t *testing.T) {
	w := newHealth(t, linkhealth.Close)
	c := w.connect(&wirev1.Hello{})
	w.beats(c, quick, quick, slow, slow, quick, slow, slow)
	c.expect("Pong 0", "Pong 0", "Pong 0", "Pong 0", "Pong 0", "Pong 0", "Pong 0")
	w.beats(c, slow)
	c.expect("Pong 0", "Error UNHEALTHY ref=0")
	s := w.h.Stats()
	if s.Closes[wirev1.Code_CODE_UNHEALTHY] != 1 || s.UnhealthyTimes != 1 || s.Unhealthy != 0 || s.Connections != 0 || s.RTT.Counts[4] != 3 || w.h.InUse()["records of links"] != 0 {
		t.Fatalf("%+v, %v", s, w.h.InUse())
	}
}

func TestUnhealthyConnectionIsReportedAlone(t *testing.T) {
	w := newHealth(t, linkhealth.Report)
	c := w.connect(&wirev1.Hello{})
	w.beats(c, quick, slow, slow, slow, slow)
	if s := w.h.Stats(); s.Unhealthy != 1 || s.UnhealthyTimes != 1 || s.Spared[linkhealth.Reported] != 2 || s.Connections != 1 {
		t.Fatalf("%+v", s)
	}
	w.beats(c, quick)
	if s := w.h.Stats(); s.Unhealthy != 0 || s.UnhealthyTimes != 1 {
		t.Fatalf("%+v", s)
	}
	w.beats(c, slow, slow, slow)
	w.h.Gone(c.slot)
	w.settle()
	if s := w.h.Stats(); s.Unhealthy != 0 || s.UnhealthyTimes != 2 || w.h.InUse()["records of links"] != 0 {
		t.Fatalf("%+v, %v", s, w.h.InUse())
	}
}

func TestNobodyLooksWhereHealthIsOff(t *testing.T) {
	w := newHealth(t, linkhealth.Off)
	w.h.cfg.Path = func(uint32) linkhealth.Path {
		t.Error("the kernel was asked")
		return linkhealth.Path{}
	}
	c := w.connect(&wirev1.Hello{})
	w.beats(c, slow, slow, slow, slow)
	if s := w.h.Stats(); s.Connections != 1 || s.UnhealthyTimes != 0 || s.RTT.Sum != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestTheKernelsRoundTripCountsWithoutAReport(t *testing.T) {
	w := newHealth(t, linkhealth.Close)
	c := w.connect(&wirev1.Hello{})
	w.path = linkhealth.Path{RTT: 4_000_000}
	w.beats(c, 0, 0, 0)
	c.expect("Pong 0", "Pong 0", "Pong 0", "Error UNHEALTHY ref=0")
}

// What the edge kept waiting does not count, neither then nor in the report that comes a heartbeat
// later.
func TestRoundTripsThatTheEdgeCausedDoNotCount(t *testing.T) {
	w := newHealth(t, linkhealth.Close)
	c := w.connect(&wirev1.Hello{})
	discarded := func(what string, late, queued uint64) {
		t.Helper()
		if s := w.h.Stats(); s.RTTLate != late || s.RTTQueued != queued || s.UnhealthyTimes != 0 {
			t.Fatalf("%s: %d and %d were discarded, %d times unhealthy", what, s.RTTLate, s.RTTQueued, s.UnhealthyTimes)
		}
	}
	w.beats(c, quick, quick)
	w.h.Late()
	w.beat(c, slow)
	w.beats(c, slow)
	discarded("the loop was late", 2, 0)
	w.pass(2 * time.Second)
	w.beats(c, quick)
	discarded("a heartbeat later", 2, 0)

	w.path.Unsent = 1
	w.beats(c, slow)
	w.path.Unsent = 0
	w.beats(c, slow)
	discarded("the kernel had not sent everything", 2, 2)
	w.beats(c, quick)
	discarded("a heartbeat later", 2, 2)

	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	c.slow = true
	w.mesh.Send("room/1", "a")
	w.settle()
	w.beats(c, slow)
	c.slow = false
	c.take()
	w.beats(c, slow)
	discarded("a message had not left", 2, 4)
	w.beats(c, slow, slow)
	discarded("two spikes", 2, 4)
	c.got = nil
	w.beats(c, slow)
	c.expect("Pong 0", "Error UNHEALTHY ref=0")
}

func TestClosesAreCapped(t *testing.T) {
	const all, sick = 300, 12
	w := newHealth(t, linkhealth.Close)
	w.h.cfg.Gate.Holds(w.h.cfg.Loop, all)
	var clients []*client
	for range all {
		clients = append(clients, w.connect(&wirev1.Hello{HeartbeatMs: 600_000}))
	}
	round := func(report time.Duration) {
		w.pass(2 * time.Second)
		for _, c := range clients[:sick] {
			if !c.ended {
				w.beat(c, report)
			}
		}
	}
	held := func(what string, connections int64, why linkhealth.Reason, spared uint64) {
		t.Helper()
		if s := w.h.Stats(); s.Connections != connections || s.Spared[why] != spared || s.Closes[wirev1.Code_CODE_UNHEALTHY] != uint64(all-connections) {
			t.Fatalf("%s: %d connections, spared %v", what, s.Connections, s.Spared)
		}
	}
	round(slow)
	round(slow)
	held("two round trips", all, linkhealth.Capped, 0)
	round(slow)
	held("three: 4 % are unhealthy", all-3, linkhealth.Capped, sick-3)
	w.pass(9 * time.Second)
	w.h.cfg.Gate.Holds(w.h.cfg.Loop, all-3)
	round(slow)
	held("ten seconds later", all-5, linkhealth.Capped, sick-3+sick-5)
	w.pass(10 * time.Second)
	w.h.Late()
	w.pass(9 * time.Second)
	for _, c := range clients[:sick] {
		c.w.h.conns.Get(c.slot).Heartbeat = 1000 // so that its round trips count again
	}
	w.beat(clients[sick-1], slow)
	held("the edge was late", all-5, linkhealth.Late, 1)
}

func TestNobodyIsClosedWhereManyTurnTogether(t *testing.T) {
	const all, sick = 100, 6
	w := newHealth(t, linkhealth.Close)
	w.h.cfg.Gate.Holds(w.h.cfg.Loop, all)
	var clients []*client
	for range all {
		clients = append(clients, w.connect(&wirev1.Hello{}))
	}
	for range 3 {
		w.pass(10 * time.Second)
		for i, c := range clients {
			if i < sick {
				w.beat(c, slow)
			} else {
				w.beat(c, quick)
			}
		}
	}
	// Five of a hundred are not too many yet, and one of them may go.
	if s := w.h.Stats(); s.Connections != all-1 || s.Spared[linkhealth.Together] != 1 || s.Spared[linkhealth.Capped] != sick-2 {
		t.Fatalf("%d connections, spared %v", s.Connections, s.Spared)
	}
	w.pass(20 * time.Second)
	w.beat(clients[sick-1], slow)
	if s := w.h.Stats(); s.Connections != all-1 || s.Spared[linkhealth.Together] != 2 {
		t.Fatalf("%d connections, spared %v", s.Connections, s.Spared)
	}
}

func TestJudgingMakesNoGarbage(t *testing.T) {
	h, slots := crowd(t, 100, &wirev1.Subscribe{})
	h.judgeLinks(linkhealth.Report)
	h.cfg.Path = func(uint32) linkhealth.Path { return linkhealth.Path{RTT: 1000} }
	f := &flusher{h: h}
	for name, report := range map[string]uint32{"calm": 300, "with a record": 700_000, "unhealthy": 9_000_000} {
		ping := frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7, LastRttUs: report})
		round := func() {
			for _, slot := range slots {
				h.Feed(slot, ping, 1)
			}
			f.flush()
		}
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations for %d Pings", name, n, len(slots))
		}
	}
}

// judgeLinks has the hub judge links from now on.
func (h *Hub) judgeLinks(mode linkhealth.Mode) {
	h.cfg.Unhealthy, h.links = mode, linkhealth.NewWatch(mode, h.cfg.Gate)
}
