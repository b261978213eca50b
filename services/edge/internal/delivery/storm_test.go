package delivery

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// Very many connections with many subscriptions each that end together, or begin together, don't
// hold a live message up: it is delivered in the very next slice, and a slice takes few of their
// subscriptions apart, or begins few.
func TestLiveMessagesGoBeforeAStorm(t *testing.T) {
	const conns, subs, budget = 2000, 100, 64 // which is what one job's slice counts for
	mesh := &leaves{}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
	open := func(frames ...[]byte) uint32 {
		slot, _ := h.Open()
		h.Feed(slot, hello, 1)
		for _, frame := range frames {
			h.Feed(slot, frame, 1)
		}
		return slot
	}
	listener := open(frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "live/1"}))
	for h.Work(1 << 20) {
	}
	f := &flusher{h: h}
	f.flush()

	// through does slices until nothing is left, with a live message before each.
	seq := uint64(0)
	through := func(what string, did func() int, most int) {
		t.Helper()
		slices := 0
		for more := true; more; slices++ {
			seq++
			h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("live/1", upstreamtest.BaseEpoch, seq, "now")}})
			before := did()
			more = h.Work(budget)
			if n := did() - before; n > most {
				t.Fatalf("%s: one slice did %d", what, n)
			}
			out := h.conns.Get(listener).Out
			if out.Messages() != 1 {
				t.Fatalf("%s: %d messages were delivered in slice %d, want the one that came before it", what, out.Messages(), slices)
			}
			f.flush()
		}
		if slices < conns*subs/most {
			t.Fatalf("%s took %d slices", what, slices)
		}
	}
	var frames [][]byte
	for i := range subs {
		frames = append(frames, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: fmt.Sprintf("room/%d", i)}))
	}
	var all []uint32
	for range conns {
		all = append(all, open(frames...))
	}
	through("beginning", func() int { return h.tracks.Slab.Taken() }, budget+teardownSlice)
	if got := h.tracks.Slab.Taken(); got != conns*subs+1 {
		t.Fatalf("%d have begun", got)
	}
	for _, slot := range all {
		h.Gone(slot)
	}
	through("ending", func() int { return mesh.n }, teardownSlice)
	if got := h.Stats().Subscriptions; got != 1 {
		t.Fatalf("%d subscriptions are left", got)
	}
}
