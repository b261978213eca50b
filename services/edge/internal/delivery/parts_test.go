package delivery

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/counters"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/lag"
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/native"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// The deepest queues are seen from outside: how many connections owe how much, and how much the one
// owes that owes most.
func TestQueuesAreCountedBySize(t *testing.T) {
	w := newWorld(t, Limits{QueueBytes: 64 << 20, QueueMessages: 10_000})
	var held []int
	for i, n := range []int{0, 1, 70, 70, 300, 1100, 5000} { // KiB
		c := w.connect(&wirev1.Hello{HeartbeatMs: 600_000})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: fmt.Sprint("talk/", i)})
		c.expect("Subscribed 1 head=0")
		c.slow = true
		for at := 0; at < n; at += 100 {
			w.mesh.Live(upstreamtest.Encode(fmt.Sprint("talk/", i), 0, 0, string(make([]byte, min(100, n-at)<<10))))
		}
		w.settle()
		held = append(held, w.h.conns.Get(c.slot).Out.Held())
	}
	s := w.h.Stats()
	if want := [len(counters.QueueSizes)]int64{6, 5, 3, 2, 1}; s.QueuesBySize != want {
		t.Errorf("%v connections owe %v bytes, want %v: %v", s.QueuesBySize, counters.QueueSizes, want, held)
	}
	if most := int64(held[len(held)-1]); s.LargestQueue > most || s.LargestQueue < most-most/8 {
		t.Errorf("the largest queue has %d bytes, and %d is told", most, s.LargestQueue)
	}
}

// A connection's frames are taken in parts: as many short ones as there is budget for, and long
// ones for what they are.
func TestFramesAreTakenInParts(t *testing.T) {
	h, slots := crowd(t, 1, &wirev1.Subscribe{})
	ping := frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	long := frameOf(t, wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: 5, Token: string(make([]byte, 8*native.BytesAsOne))})
	for _, one := range []struct {
		frame        []byte
		budget, want int
	}{{ping, 1, 1}, {ping, 7, 7}, {ping, 20, 20}, {long, 1, 1}, {long, 9, 1}, {long, 10, 2}, {long, 27, 3}, {long, 28, 4}} {
		b := slices.Repeat(one.frame, 30)
		before := h.Frames()
		used, more := h.Feed(slots[0], b, one.budget)
		if used != one.want*len(one.frame) || !more || h.Frames()-before != uint64(one.want) {
			t.Fatalf("of frames of %d bytes %d were taken with a budget of %d, want %d; more %v", len(one.frame), used/len(one.frame), one.budget, one.want, more)
		}
		(&flusher{h: h}).flush()
	}
	half := ping[:len(ping)-1]
	if used, more := h.Feed(slots[0], half, 5); used != 0 || more {
		t.Fatalf("%d bytes of half a frame are used, more %v", used, more)
	}
	if used, more := h.Feed(slots[0], append(slices.Clone(ping), half...), 5); used != len(ping) || more {
		t.Fatalf("%d bytes of one and a half frames are used, more %v", used, more)
	}
}

// Very many who wait for the same part of a log go on some at a time once it has come.
func TestARangeIsGivenOutInSlices(t *testing.T) {
	const conns = 1000
	h, slots := crowd(t, conns, &wirev1.Subscribe{})
	reading := func() (n int) {
		for _, slot := range slots {
			if h.conns.Get(slot).Tracks.At(0).Reading {
				n++
			}
		}
		return n
	}
	h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, 1, "x")}})
	// 2 is lost
	h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, 3, "x")}})
	for h.Work(4096) {
	}
	(&flusher{h: h}).flush()
	if n, reads := reading(), h.Stats().LogReads; n != conns || reads != 1 {
		t.Fatalf("%d of %d read, with %d reads", n, conns, reads)
	}
	h.Event(exchange.Range{Topic: "room/1", From: 2, Epoch: upstreamtest.BaseEpoch, Oldest: 1, Head: 3, Messages: upstreamtest.Run("room/1", upstreamtest.BaseEpoch, 2, "x", "y")})
	if n := slicesOf(t, h, fanSlice, "have it", reading); n < conns/fanSlice {
		t.Fatalf("%d slices", n)
	}
	for h.Work(4096) {
	}
	for i, slot := range slots {
		if c := h.conns.Get(slot); c.Out.Messages() != 2 || c.Tracks.At(0).Pos != 3 || c.Tracks.At(0).Behind {
			t.Fatalf("connection %d: %d messages, at %d", i, c.Out.Messages(), c.Tracks.At(0).Pos)
		}
	}
	if h.replay.pinned != 0 || h.replay.reads.Topics() != 0 {
		t.Fatalf("%d ranges are held, %d reads", h.replay.pinned, h.replay.reads.Topics())
	}
}

// Those who are behind are counted some at a time, however many they are, and whoever is level or
// gone is not among them any more.
func TestLagIsLookedAtInSlices(t *testing.T) {
	const conns = 3*lag.Slice + 5
	h, slots := crowd(t, conns, &wirev1.Subscribe{})
	h.Event(exchange.Live{Messages: upstreamtest.Run("room/1", upstreamtest.BaseEpoch, 1, "x")})
	h.Event(exchange.Live{Messages: upstreamtest.Run("room/1", upstreamtest.BaseEpoch, 11, "x")})
	for h.Work(4096) {
	}
	look := func() (steps int) {
		h.SetTime(h.now+int64(lag.Every), wallStart)
		h.Relieve()
		if h.rooms.jobs.Len() != 1 {
			t.Fatalf("%d jobs", h.rooms.jobs.Len())
		}
		for ; h.rooms.jobs.Len() > 0; steps++ {
			h.rooms.jobs.Step()
		}
		return steps
	}
	if n := look(); n != 4 {
		t.Fatalf("%d slices", n)
	}
	if s := h.Stats(); s.BehindNow != conns || s.Lag != 10*conns || s.LongestLag != 10 || s.StandingNow != 0 {
		t.Fatalf("%d behind by %d, one by %d", s.BehindNow, s.Lag, s.LongestLag)
	}
	for _, slot := range slots[:100] {
		h.Gone(slot)
	}
	for _, slot := range slots[100:200] {
		h.conns.Get(slot).Tracks.At(0).Behind = false
	}
	for h.Work(4096) {
	}
	look()
	if s := h.Stats(); s.BehindNow != conns-200 || s.Lag != 10*(conns-200) || len(h.lagging.Tracks()) != conns-200 {
		t.Fatalf("%d behind by %d, %d listed", s.BehindNow, s.Lag, len(h.lagging.Tracks()))
	}
	h.lagging.Add(h.conns.Get(slots[150]).Tracks.At(0)) // it is not behind
	if len(h.lagging.Tracks()) != conns-200 {
		t.Fatal("one that is level is listed")
	}
}

// A hub that is given nothing but its settings works.
func TestDefaults(t *testing.T) {
	h := newHub(t, Config{PolicyFor: policy.NewTable(nil).For, Loop: 2, Limits: Limits{PublishWindow: 1 << 20, MaxFrame: 7, ReadBytes: -1}})
	if l := h.lim; l.PublishWindow != 65_535 || l.MaxFrame != 7 || l.ReadBytes != 128<<10 || l.WildcardTopics != 1000 || l.QueueMemory != 512<<20 || l.ReceiveWindow != 256 || l.ReplayPace != 0 {
		t.Fatalf("%+v", l)
	}
	if h.cfg.Unknown() != nil || h.cfg.Refuses("x") != nil || h.cfg.Path(1).RTT != 0 || h.Busy() || h.Queued() || h.Drained() || h.Draining() || h.Gen(7) != 0 {
		t.Fatal("a new hub is not idle")
	}
}

// Who is behind is handed on a slice of what it has read at a time, so that others have their turn,
// and all of it.
func TestABacklogIsHandedOnInSlices(t *testing.T) {
	const backlog = 10*replaySlice + 5
	mesh := &still{}
	h := newHub(t, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, Limits: Limits{QueueMessages: 100 * backlog, QueueBytes: 1 << 30}})
	mesh.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1}), 1)
	h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"}), 1)
	h.Event(exchange.Live{Messages: upstreamtest.Run("room/1", upstreamtest.BaseEpoch, backlog, "x")})
	for h.Work(4096) {
	}
	h.Event(exchange.Range{Topic: "room/1", From: 1, Epoch: upstreamtest.BaseEpoch, Oldest: 1, Head: backlog, Messages: upstreamtest.Run("room/1", upstreamtest.BaseEpoch, 1, slices.Repeat([]string{"x"}, backlog)...)})
	c := h.conns.Get(slot)
	if n := slicesOf(t, h, replaySlice, "messages are handed on", func() int { return -c.Out.Messages() }); n < backlog/replaySlice {
		t.Fatalf("%d slices", n)
	}
	if s := h.Stats(); c.Out.Messages() != backlog || s.Resumed != 1 || s.Behind != 1 || s.LogReads != 1 {
		t.Fatalf("%d of %d, %+v", c.Out.Messages(), backlog, s)
	}
}
