package delivery

import (
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/state"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
)

// fieldsOf gives each field of a struct a value that is not zero, one at a time.
func fieldsOf(t *testing.T, of any, but []string, look func(name string)) {
	t.Helper()
	v := reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains(but, name) {
			continue
		}
		f := reflect.NewAt(v.Field(i).Type(), unsafe.Pointer(v.Field(i).UnsafeAddr())).Elem()
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint32, reflect.Uint64, reflect.Uint16:
			f.SetUint(1)
		case reflect.Int64, reflect.Int, reflect.Int32:
			f.SetInt(1)
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Struct:
			f.Set(reflect.ValueOf(gaps.Gap{To: 1}))
		default:
			t.Fatalf("no value of %s", name)
		}
		look(name)
		f.SetZero()
	}
}

// What few connections and positions have takes no memory of those that have none of it, and none
// of it is forgotten while a connection or a position has it.
func TestRarePartsAreThereWhileTheyAreNeeded(t *testing.T) {
	h := newHub(Config{PolicyFor: policy.NewTable(nil).For})
	slot, _ := h.Open()
	c := h.conns.Get(slot)
	fieldsOf(t, h.conns.More(c), []string{"ByRef"}, func(name string) { // it goes with ByID
		m := c.ConnMore
		if h.conns.Less(c); c.ConnMore != m {
			t.Errorf("a connection's %s is forgotten", name)
			c.ConnMore = m
		}
	})
	if h.conns.Less(c); c.ConnMore != state.NoConnMore || h.conns.Mores.Taken() != 0 {
		t.Error("a connection that has nothing rare takes memory for it")
	}
	h.conns.Less(c) // is nothing
	tr := &state.Track{TrackMore: state.NoTrackMore}
	// What the others say goes with one of those that are looked at.
	fieldsOf(t, h.tracks.More(tr), []string{"Asked", "RangeAt", "AckTo", "AckSerial"}, func(name string) {
		m := tr.TrackMore
		if h.tracks.Less(tr); tr.TrackMore != m {
			t.Errorf("a position's %s is forgotten", name)
			tr.TrackMore = m
		}
	})
	for _, flag := range []*bool{&tr.Held, &tr.Reading} { // Asked says from where
		*flag = true
		if h.tracks.Less(tr); tr.TrackMore == state.NoTrackMore {
			t.Error("where a position reads on is forgotten")
		}
		*flag = false
	}
	if h.tracks.Less(tr); tr.TrackMore != state.NoTrackMore || h.tracks.Mores.Taken() != 0 {
		t.Error("a position that has nothing rare takes memory for it")
	}
	h.tracks.Less(tr) // is nothing
}

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
		"messages that wait":   {func(h *Hub) { h.fan.inbox.Push(inbound{}) }, true, true},
		"somebody behind":      {func(h *Hub) { h.replay.runnable.Push(runner{}) }, true, true},
		"a window that opened": {func(h *Hub) { h.waker.walks.Push(waking{}) }, true, true},
		"a job":                {func(h *Hub) { h.jobs.Push(&teardown{}) }, true, true},
		"somebody behind who had its part of the millisecond": {func(h *Hub) {
			h.replay.runnable.Push(runner{})
			spendPace(h, h.now)
		}, false, false},
		"somebody behind who had a part of the last millisecond": {func(h *Hub) {
			h.replay.runnable.Push(runner{})
			spendPace(h, h.now-int64(time.Millisecond))
		}, true, true},
	} {
		h := newHub(Config{PolicyFor: policy.NewTable(nil).For})
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
	status := func(c *client, what string, want Status) {
		t.Helper()
		if got := w.h.Status(c.slot); got != want {
			t.Errorf("%s: %+v", what, got)
		}
	}
	c := w.dial()
	status(c, "new", Status{Early: true})
	c.bytes([]byte{0, 0, 2, byte(wirev1.FrameType_FRAME_TYPE_HELLO)})
	status(c, "has begun Hello", Status{Early: true})
	c.kept = nil
	w.mesh.Hold()
	c = w.dial()
	c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Session: "s", HeartbeatMs: 600_000})
	status(c, "waits for its session", Status{Early: true, Hold: true})
	c.slow = true
	w.mesh.Release()
	w.settle()
	status(c, "is welcomed", Status{Owes: true})
	if got := w.h.Resumed(nil); !slices.Equal(got, []uint32{c.slot}) || len(w.h.Resumed(nil)) != 0 {
		t.Errorf("%v may read again", got)
	}
	c.slow = false
	c.expect("Welcome")
	status(c, "is idle", Status{})
	c.slow = true
	at := w.h.conns.Get(c.slot)
	for at.Out.Answers() <= maxAnswers {
		w.h.refuse(at, 7, code.New(wirev1.Code_CODE_RATE_LIMITED, "too fast"))
	}
	status(c, "does not read its answers", Status{Owes: true, Hold: true})
	w.h.Gather(c.slot, nil)
	for w.h.Status(c.slot).Hold {
		w.h.Wrote(c.slot, len(at.Out.At(0).Bytes()))
	}
	if got := w.h.Resumed(nil); !slices.Equal(got, []uint32{c.slot}) {
		t.Errorf("%v may read again", got)
	}
	w.h.Refuse(c.slot, code.New(wirev1.Code_CODE_RATE_LIMITED, "too fast"))
	status(c, "is closed", Status{Owes: true, Closing: true})
	w.pass(closeTimeout)
	status(c, "had its time", Status{Owes: true, Closing: true, Overdue: true})
	w.h.Gone(c.slot)
	w.settle()
	status(c, "is gone", Status{Gone: true, Early: true})
	w.h.CutOff(wirev1.Code_CODE_RATE_LIMITED)
	if s := w.h.Stats(); s.Closes[wirev1.Code_CODE_RATE_LIMITED] != 2 || s.Refused[wirev1.Code_CODE_RATE_LIMITED] == 0 {
		t.Errorf("closes %v", s.Closes)
	}
}
