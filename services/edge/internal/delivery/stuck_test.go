package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// stuck connects a client that takes nothing, though it pings.
func (w *world) stuck() *client {
	w.t.Helper()
	c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
	c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
	c.expect("Subscribed 1 head=0")
	c.slow = true
	w.mesh.Live(upstreamtest.Encode("talk", 0, 0, "x"))
	w.settle()
	return c
}

// look tells the hub of the socket as the loop does once in a while, for as long as the connection
// is there.
func (w *world) look(taken func() uint64, d time.Duration, all ...*client) {
	for end := w.now + int64(d); w.now < end; w.pass(time.Second) {
		for _, c := range all {
			if w.h.Gen(c.slot) == c.gen && !w.h.Status(c.slot).Closing {
				w.h.Stalled(c.slot, Held{Memory: 1000, Taken: taken()})
			}
		}
	}
}

func nothing() uint64 { return 77 }

func TestWhoTakesNothingIsClosed(t *testing.T) {
	w := newWorld(t, Limits{StuckTimeout: time.Minute})
	w.h.cfg.Gate.Holds(w.h.cfg.Loop, 100)
	c := w.stuck()
	w.look(nothing, 58*time.Second, c)
	if s := w.h.Stats(); s.StallCloses != 0 || s.Stalled != 1 {
		t.Fatalf("%+v", s)
	}
	w.look(nothing, 5*time.Second, c)
	if s := w.h.Stats(); s.StallCloses != 1 || s.Closes[wirev1.Code_CODE_SLOW_CONSUMER] != 1 || s.QueuedBytes != 0 || s.KernelBytes != 0 || !w.h.Status(c.slot).Overdue {
		t.Fatalf("%+v", s)
	}
}

// Who takes a byte once in a while is slow, and stays.
func TestWhoTakesLittleIsNotClosed(t *testing.T) {
	w := newWorld(t, Limits{StuckTimeout: time.Minute})
	w.h.cfg.Gate.Holds(w.h.cfg.Loop, 100)
	c := w.stuck()
	w.look(func() uint64 { return uint64(w.now / int64(50*time.Second)) }, 20*time.Minute, c)
	w.h.StallEnded(c.slot)
	w.look(nothing, 59*time.Second, c)
	if s := w.h.Stats(); s.StallCloses != 0 || s.Closes != (counters.ByCode{}) {
		t.Fatalf("%+v", s)
	}
}

// Where many take nothing at once it is the network, or the edge: they are closed at a pace, after
// a minute without others.
func TestManyWhoTakeNothingAreClosedAtAPace(t *testing.T) {
	w := newWorld(t, Limits{StuckTimeout: time.Minute})
	w.h.cfg.Gate.Holds(w.h.cfg.Loop, 100)
	var all []*client
	for range 20 {
		all = append(all, w.stuck())
	}
	w.look(nothing, 110*time.Second, all...)
	if s := w.h.Stats(); s.StallCloses > 1 || s.SparedStalled[linkhealth.Together] == 0 {
		// the first is alone when it is judged
		t.Fatalf("%d are closed, spared %v", s.StallCloses, s.SparedStalled)
	}
	w.look(nothing, 70*time.Second, all...)
	if s := w.h.Stats(); s.StallCloses < 2 || s.StallCloses > 8 || s.SparedStalled[linkhealth.Capped] == 0 {
		t.Fatalf("%d are closed, spared %v", s.StallCloses, s.SparedStalled)
	}
	w.h.Late()
	closed := w.h.Stats().StallCloses
	w.look(nothing, 9*time.Second, all...)
	if s := w.h.Stats(); s.StallCloses != closed {
		t.Fatal("a late edge closes clients that may have waited for it")
	}
}
