package hub

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/meshtest"
)

// many answers Join of a filter with wildcards with so many heads.
type many struct {
	still
	heads int
}

func (m *many) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	e := exchange.Joined{Conn: conn, Sub: sub}
	for i := range m.heads {
		e.Heads = append(e.Heads, exchange.Head{Topic: fmt.Sprintf("room/%d", i), Epoch: meshtest.BaseEpoch, Oldest: 1})
	}
	m.h.Event(e)
}

func frameOf(t *testing.T, ft wirev1.FrameType, m proto.Message) []byte {
	t.Helper()
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// steps counts the smallest slices of work until nothing is left.
func steps(h *Hub) (n int) {
	for n = 1; h.Work(1); n++ {
	}
	return n
}

func TestSubscriptionWithManyTopicsBeginsInSlices(t *testing.T) {
	mesh := &many{heads: 1000}
	h := New(Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true}), 1)
	if n := steps(h); n < 2*1000/teardownSlice {
		t.Fatalf("1,000 topics began in %d slices", n)
	}
	if n := len(h.conns.get(slot).tracks()); n != 1000 {
		t.Fatalf("%d topics", n)
	}
}

func TestCountIsSlicedAndExact(t *testing.T) {
	const n = 5000
	h, _ := crowd(t, n, &wirev1.Subscribe{})
	var got [2][]uint64
	for i := range got {
		h.Event(exchange.Count{Topics: []string{"room/1", "room/2"}, Reply: func(counts []uint64) { got[i] = counts }})
	}
	if s := steps(h); s < 2*n/fanSlice {
		t.Fatalf("%d subscribers were counted twice in %d slices", n, s)
	}
	for _, counts := range got {
		if len(counts) != 2 || counts[0] != n || counts[1] != 0 {
			t.Fatalf("counted %v", counts)
		}
	}
}

// Unsubscribing everything costs about as much for each subscription whether there are few or many.
func TestUnsubscribingManyStaysLinear(t *testing.T) {
	const conns, subs = 10, 1000
	mesh := &still{}
	h := New(Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	var slots []uint32
	for range conns {
		slot, _ := h.Open()
		slots = append(slots, slot)
		h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
		for i := range subs {
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i + 1), Filter: fmt.Sprintf("room/%d", i)}), 1)
		}
	}
	for h.Work(4096) {
	}
	if got := h.Stats().Subscriptions; got != conns*subs {
		t.Fatalf("%d subscriptions", got)
	}
	f := &flusher{h: h}
	f.flush()
	for _, slot := range slots {
		for i := range subs {
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: uint32(i + 1)}), 1)
		}
	}
	n := steps(h)
	if n < conns*subs/2 || n > 2*conns*subs {
		t.Fatalf("%d subscriptions ended in %d slices, want about one each", conns*subs, n)
	}
	if got := h.Stats(); got.Subscriptions != 0 || got.Topics != 0 {
		t.Fatalf("%d subscriptions and %d topics are left", got.Subscriptions, got.Topics)
	}
	if used := h.subSlab.Taken() + h.tracks.Taken() + h.trackMore.Taken() + h.pendings.Taken() + h.connMores.Taken(); used != 0 {
		t.Fatalf("%d pieces of subscriptions that ended are left", used)
	}
}

// A burst of timers is cut by what it costs, not by connections.
func TestTimersOfManyTopicsAreSliced(t *testing.T) {
	mesh := &many{heads: 1000}
	h := New(Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	hello := frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 1000})
	subscribe := frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/+", Ack: true})
	for range 50 {
		slot, _ := h.Open()
		h.Feed(slot, hello, 1)
		h.Feed(slot, subscribe, 1)
		for h.Work(4096) {
		}
		c := h.conns.get(slot)
		h.SetTime(2_000_000_000, wallStart)
		c.heard = h.now
		h.SetTime(1, wallStart)
	}
	h.SetTime(2_600_000_000, wallStart)
	turns := 1
	for h.Tick(512) {
		turns++
	}
	if turns < 10 {
		t.Fatalf("50 connections with 1,000 topics each were looked at in %d turns", turns)
	}
}
