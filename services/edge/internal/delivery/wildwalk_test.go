package delivery

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/count"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// wildCrowd is n connections with one filter each, of which some end in the same places of two
// lists.
func wildCrowd(t *testing.T, n int) (h *Hub, slots []uint32) {
	t.Helper()
	mesh := &many{}
	h = newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	for i := range n {
		slot, _ := h.Open()
		slots = append(slots, slot)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		m := &wirev1.Subscribe{Id: 1, Filter: []string{"room/+", "room/#"}[i%2]}
		if i%3 == 0 {
			m.Start = wirev1.Start_START_EARLIEST
		}
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m), 1)
	}
	for h.Work(4096) {
	}
	(&flusher{h: h}).flush()
	return h, slots
}

// Connections come and go while a message walks over the subscriptions of the filters that match
// it: those that stay get it once, whether the topic is new or ephemeral, and a Count under way
// counts each of them.
func TestWildcardsAreWalkedWhileTheyComeAndGo(t *testing.T) {
	const n = 600
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		h, slots := wildCrowd(t, n)
		m := upstreamtest.Encode("room/9", 0, 0, "ephemeral")
		if seed%2 == 1 {
			m = upstreamtest.Encode("room/9", upstreamtest.BaseEpoch, 1, "durable")
		}
		h.Event(exchange.Live{Messages: []*exchange.Message{m}})
		var counts []uint64
		h.Event(exchange.Count{Topics: []string{"room/8"}, Reply: func(c []uint64) { counts = c }})
		gone := map[int]bool{}
		for step := 0; h.Work(1); step++ {
			if step%3 != 0 || len(gone) >= n/2 && seed < 4 {
				continue // all of them go with the last seeds
			}
			if i := r.IntN(n); !gone[i] {
				gone[i] = true
				h.Gone(slots[i])
			}
		}
		for i, slot := range slots {
			if got := h.conns.Get(slot).Out.Messages(); !gone[i] && got != 1 {
				t.Fatalf("seed %d: connection %d got the message %d times", seed, i, got)
			}
		}
		if len(counts) != 1 || counts[0] < uint64(n-len(gone)) || counts[0] > n {
			t.Fatalf("seed %d: counted %v of %d, of which %d ended meanwhile", seed, counts, n, len(gone))
		}
		for i, slot := range slots {
			if !gone[i] {
				h.Gone(slot)
			}
		}
		for h.Work(4096) {
		}
		if h.wildcards.index.Len() != 0 || h.wildcards.index.Taken() != 0 {
			t.Fatalf("%d filters are left", h.wildcards.index.Len())
		}
	}
}

// All who had the filters in hand end in the middle of a walk, and others subscribe to filters that
// take their places in memory.
func TestFiltersThatEndInTheMiddleOfTheirWalk(t *testing.T) {
	for steps := range 12 {
		h, slots := wildCrowd(t, 4)
		h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/9", 0, 0, "ephemeral")}})
		h.Event(exchange.Count{Topics: []string{"room/9"}, Reply: func([]uint64) {}})
		for range steps {
			h.Work(1)
		}
		for _, slot := range slots {
			c := h.conns.Get(slot)
			for c.Subs.Len() > 0 { // as teardown does
				if c.Tracks.Len() > 0 {
					h.dropTrack(c.Tracks.At(0))
					continue
				}
				h.forgetSub(c.Subs.At(0))
			}
		}
		other, _ := h.Open()
		h.Feed(other, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		for i := range 4 {
			h.Feed(other, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: fmt.Sprintf("talk/%d/+", i)}), 1)
		}
		for _, s := range h.conns.Get(other).Subs.All() {
			s.Active, s.Open = true, true
		}
		for h.Work(1) {
		}
		if n := h.conns.Get(other).Out.Messages(); n != 0 {
			t.Fatalf("after %d steps: %d messages of another topic came", steps, n)
		}
	}
}

// Counting the subscriptions of one filter looks at some of them at a time.
func TestCountOfWildcardsIsSliced(t *testing.T) {
	h, _ := wildCrowd(t, 5000)
	most, before := 0, uint64(0)
	h.Event(exchange.Count{Topics: []string{"room/8"}, Reply: func([]uint64) {}})
	for more := true; more; {
		more = h.Work(1)
		n := h.counts.UnderWay()
		most = max(most, int(n-min(before, n)))
		before = n
	}
	if most == 0 || most > count.Slice {
		t.Fatalf("%d subscriptions were counted in one slice", most)
	}
}

// Where a connection has many filters, placing a subscription with many topics among them is cut by
// how many are matched.
func TestMatchingFiltersIsCounted(t *testing.T) {
	const topics, filters = 100, 900
	mesh := &many{heads: 0}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
	for i := range filters {
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 2), Filter: fmt.Sprintf("talk/%d/+", i)}), 1)
	}
	for h.Work(4096) {
	}
	mesh.heads = topics
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+"}), 1)
	if n, want := steps(h), topics*filters/walk.SearchedPerUnit/(teardownSlice+filters/walk.SearchedPerUnit); n < want {
		t.Fatalf("%d topics were matched with %d filters in %d slices, want %d", topics, filters, n, want)
	}
	if n := h.conns.Get(slot).Tracks.Len(); n != topics {
		t.Fatalf("%d topics", n)
	}
}
