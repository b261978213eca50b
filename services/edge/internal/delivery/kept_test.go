package delivery

import (
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// spendPace has those who are behind have their part of the millisecond.
func spendPace(h *Hub, now int64) {
	h.replay.pace.Most = 1
	h.replay.pace.Exhausted(now)
	h.replay.pace.Spend(1)
}

// A loop does not sleep while its hub has something for it to do, whatever that is, and sleeps when
// it has not: it would take a core's time for nothing.
func TestALoopIsAskedForWhatThereIs(t *testing.T) {
	for what, one := range map[string]struct {
		set          func(h *Hub)
		busy, queued bool
	}{
		"nothing":              {func(*Hub) {}, false, false},
		"something to flush":   {func(h *Hub) { h.conns.Dirty = append(h.conns.Dirty, 0) }, true, false},
		"somebody who reads":   {func(h *Hub) { h.conns.Resumed = append(h.conns.Resumed, 0) }, true, false},
		"a socket to close":    {func(h *Hub) { h.conns.Closed = append(h.conns.Closed, 0) }, true, false},
		"messages in hand":     {func(h *Hub) { h.fan.ms = append(h.fan.ms, &exchange.Message{}) }, true, true},
		"messages that wait":   {func(h *Hub) { h.fan.inbox.Push(exchange.Live{}) }, true, true},
		"somebody behind":      {func(h *Hub) { h.replay.runnable.Push(0, 0, runner{}) }, true, true},
		"a window that opened": {func(h *Hub) { h.waker.Wake(&state.Conn{Waiting: 1}) }, true, true},
		"a job":                {func(h *Hub) { h.jobs.Push(&teardown{}) }, true, true},
		"somebody behind who had its part of the millisecond": {func(h *Hub) {
			h.replay.runnable.Push(0, 0, runner{})
			spendPace(h, h.now)
		}, false, false},
		"somebody behind who had a part of the last millisecond": {func(h *Hub) {
			h.replay.runnable.Push(0, 0, runner{})
			spendPace(h, h.now-int64(time.Millisecond))
		}, true, true},
	} {
		h := newHub(t, Config{PolicyFor: policy.NewTable(nil).For})
		h.SetTime(int64(time.Hour), wallStart)
		one.set(h)
		if h.Busy() != one.busy || h.Queued() != one.queued {
			t.Errorf("%s: busy %v, queued %v", what, h.Busy(), h.Queued())
		}
	}
}

// What a loop is told of a connection is what it has to do for it.
func TestAConnectionsStatus(t *testing.T) {
	w := newWorld(t, Limits{})
	status := func(c *client, what string, want state.Status) {
		t.Helper()
		if got := w.h.Status(c.slot); got != want {
			t.Errorf("%s: %+v", what, got)
		}
	}
	c := w.dial()
	status(c, "new", state.Status{Early: true})
	c.bytes([]byte{0, 0, 2, byte(wirev1.FrameType_FRAME_TYPE_HELLO)})
	status(c, "has begun Hello", state.Status{Early: true})
	c.kept = nil
	w.mesh.Hold()
	c = w.dial()
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Session: "s", HeartbeatMs: 600_000})
	status(c, "waits for its session", state.Status{Early: true, Hold: true})
	c.slow = true
	w.mesh.Release()
	w.settle()
	status(c, "is welcomed", state.Status{Owes: true})
	if got := w.h.Resumed(nil); !slices.Equal(got, []uint32{c.slot}) || len(w.h.Resumed(nil)) != 0 {
		t.Errorf("%v may read again", got)
	}
	c.slow = false
	c.expect("Welcome")
	status(c, "is idle", state.Status{})
	c.slow = true
	at := w.h.conns.Get(c.slot)
	for at.Out.Answers() <= maxAnswers {
		w.h.refuse(at, 7, code.New(wirev1.Code_CODE_RATE_LIMITED, "too fast"))
	}
	status(c, "does not read its answers", state.Status{Owes: true, Hold: true})
	w.h.Gather(c.slot, nil, 0)
	for w.h.Status(c.slot).Hold {
		w.h.Wrote(c.slot, len(at.Out.At(0).Bytes()))
	}
	if got := w.h.Resumed(nil); !slices.Equal(got, []uint32{c.slot}) {
		t.Errorf("%v may read again", got)
	}
	w.h.Refuse(c.slot, code.New(wirev1.Code_CODE_RATE_LIMITED, "too fast"))
	status(c, "is closed", state.Status{Owes: true, Closing: true})
	w.pass(closeTimeout)
	status(c, "had its time", state.Status{Owes: true, Closing: true, Overdue: true})
	w.h.Gone(c.slot)
	w.settle()
	status(c, "is gone", state.Status{Gone: true, Early: true})
	w.h.CutOff(wirev1.Code_CODE_RATE_LIMITED)
	if s := w.h.Stats(); s.Closes[wirev1.Code_CODE_RATE_LIMITED] != 2 || s.Refused[wirev1.Code_CODE_RATE_LIMITED] == 0 {
		t.Errorf("closes %v", s.Closes)
	}
}
