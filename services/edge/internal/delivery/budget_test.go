package delivery

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// still is a mesh that answers Join at once and does nothing else, so that only the hub is
// measured.
type still struct {
	exchange.Mesh
	h *Hub
}

func (s *still) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	s.h.Event(exchange.Joined{Conn: conn, Sub: sub, Heads: []exchange.Head{{Topic: filter, Epoch: upstreamtest.BaseEpoch, Oldest: 1}}})
}
func (s *still) Leave(uint16, string)                                   {}
func (s *still) Read(uint16, string, uint64, uint64, uint64, int)       {}
func (s *still) Save(exchange.Conn, uint32, *meshv1.SessionWrite, bool) {}

// crowd is a hub with n connections that each have one subscription to room/1.
func crowd(tb testing.TB, n int, m *wirev1.Subscribe) (*Hub, []uint32) {
	tb.Helper()
	mesh := &still{}
	h := newHub(tb, Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For})
	mesh.h = h
	h.SetTime(1, wallStart)
	m.Id, m.Filter = 1, "room/1"
	hello, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "client-0001"})
	if err != nil {
		tb.Fatal(err)
	}
	both, err := wire.Append(hello, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)
	if err != nil {
		tb.Fatal(err)
	}
	var slots []uint32
	f := &flusher{h: h}
	for range n {
		slot, _ := h.Open()
		if used, _ := h.Feed(slot, both, 10); used != len(both) {
			tb.Fatalf("used %d of %d", used, len(both))
		}
		slots = append(slots, slot)
		for h.Work(1000) {
		}
		f.flush()
	}
	return h, slots
}

// flusher takes everything that the hub owes.
type flusher struct {
	h     *Hub
	slots []uint32
	bufs  [][]byte
}

func (f *flusher) flush() (bytes int) {
	f.slots = f.h.Dirty(f.slots[:0])
	for _, slot := range f.slots {
		for f.h.Status(slot).Owes {
			f.bufs = f.h.Gather(slot, f.bufs[:0], 0)
			n := 0
			for _, b := range f.bufs {
				n += len(b)
			}
			f.h.Wrote(slot, n)
			bytes += n
		}
	}
	return bytes
}

// stream posts messages one after the other, made beforehand.
type stream struct {
	events []exchange.Event
	next   int
}

func newStream(t tester, n int) *stream { return newRuns(t, n, 1) }

// newRuns makes n batches of so many messages each.
func newRuns(t tester, n, messages int) *stream {
	s, all := &stream{}, slices.Repeat([]string{"hello, world"}, messages)
	for i := range n {
		s.events = append(s.events, exchange.Live{Messages: upstreamtest.Run("room/1", upstreamtest.BaseEpoch, uint64(i*messages+1), all...)})
	}
	return s
}

func (s *stream) post(h *Hub) {
	h.Event(s.events[s.next])
	s.next++
	for h.Work(1000) {
	}
}

func TestDeliveryMakesNoGarbage(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		h, _ := crowd(t, 100, &wirev1.Subscribe{})
		s, f := newStream(t, 200), &flusher{h: h}
		for range 20 {
			s.post(h)
			f.flush()
		}
		if n := testing.AllocsPerRun(100, func() { s.post(h); f.flush() }); n != 0 {
			t.Fatalf("%v allocations for 100 deliveries", n)
		}
		if got := h.Stats().Deliveries; got != uint64(100*s.next) {
			t.Fatalf("%d deliveries of %d messages", got, s.next)
		}
	})
	t.Run("runs", func(t *testing.T) {
		h, _ := crowd(t, 100, &wirev1.Subscribe{})
		s, f := newRuns(t, 200, 32), &flusher{h: h}
		for range 20 {
			s.post(h)
			f.flush()
		}
		if n := testing.AllocsPerRun(100, func() { s.post(h); f.flush() }); n != 0 {
			t.Fatalf("%v allocations for 3200 deliveries", n)
		}
		if got := h.Stats().Deliveries; got != uint64(3200*s.next) {
			t.Fatalf("%d deliveries of %d batches", got, s.next)
		}
	})
	t.Run("ACKed", func(t *testing.T) {
		h, slots := crowd(t, 100, &wirev1.Subscribe{Ack: true, Start: wirev1.Start_START_EARLIEST})
		s, f := newStream(t, 200), &flusher{h: h}
		var acks [][]byte
		for i := range s.events {
			b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: uint64(i + 1), Sub: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			acks = append(acks, b)
		}
		round := func() {
			ack := acks[s.next]
			s.post(h)
			f.flush()
			for _, slot := range slots {
				h.Feed(slot, ack, 1)
			}
		}
		for range 20 {
			round()
		}
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Fatalf("%v allocations for 100 deliveries", n)
		}
		if got := h.Stats(); got.Acks != uint64(100*s.next) || got.Unacked != 0 {
			t.Fatalf("%d ACKs of %d messages", got.Acks, s.next)
		}
	})
}

// An idle connection with one subscription costs the hub this much memory at most, everything
// counted.
const idleBudget = 344

// heapBytes is what is on the heap and in use.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestIdleConnectionStaysSmall(t *testing.T) {
	const n = 5000
	crowd(t, 1, &wirev1.Subscribe{}) // what a process makes once is no connection's
	before := heapBytes()
	h, slots := crowd(t, n, &wirev1.Subscribe{})
	h.judgeLinks(linkhealth.Report)
	f, ping := &flusher{h: h}, frameOf(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7, LastRttUs: 40_000})
	for _, slot := range slots {
		h.Feed(slot, ping, 1)
		f.flush()
	}
	if got := h.Stats().RTT.Counts; got[4] != n {
		t.Fatalf("round trips are counted as %v", got)
	}
	off := h.links.Book().Bytes() + h.conns.Slab.Bytes() + h.subs.Slab.Bytes() + h.tracks.Slab.Bytes() + h.texts.Bytes() + h.arrays.Bytes() + h.topics.Slab.Bytes() + h.kept.Memory()
	per := (heapBytes() - before + uint64(off)) / n
	t.Logf("%d bytes for a connection", per)
	if per > idleBudget {
		t.Fatalf("%d bytes for a connection, the budget is %d", per, idleBudget)
	}
	runtime.KeepAlive(h)
	runtime.KeepAlive(slots)
}

// A batch of 32 messages of a topic, as it comes from a router under load.
func BenchmarkFanOutRun(b *testing.B) {
	const conns, messages = 1000, 32
	h, _ := crowd(b, conns, &wirev1.Subscribe{})
	f := &flusher{h: h}
	run := upstreamtest.Run("room/1", 0, 0, slices.Repeat([]string{"hello, world"}, messages)...)
	b.ReportAllocs()
	for b.Loop() {
		h.Event(exchange.Live{Messages: run})
		for h.Work(4096) {
		}
		f.flush()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/conns/messages, "ns/delivery")
}

func BenchmarkFanOut(b *testing.B) { fanOut(b, &wirev1.Subscribe{}, func(*Hub, uint32, uint64) {}) }

// A message to 1,000 subscribers, and the ACK of each.
func BenchmarkFanOutAcked(b *testing.B) {
	var ack []byte
	of := uint64(0)
	h := fanOut(b, &wirev1.Subscribe{Ack: true, Start: wirev1.Start_START_EARLIEST}, func(h *Hub, slot uint32, seq uint64) {
		if of != seq {
			of, ack = seq, frameOf(b, wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: seq, Sub: 1}}})
		}
		h.Feed(slot, ack, 1)
	})
	if n := h.Stats().Unacked; n != 0 {
		b.Fatalf("%d are un-ACKed", n)
	}
}

// fanOut measures one message at a time to 1,000 subscribers, each of which does something then.
func fanOut(b *testing.B, m *wirev1.Subscribe, then func(h *Hub, slot uint32, seq uint64)) *Hub {
	const conns = 1000
	h, slots := crowd(b, conns, m)
	f := &flusher{h: h}
	frame := upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, 1, "hello, world")
	b.ReportAllocs()
	for seq := uint64(1); b.Loop(); seq++ {
		m := &exchange.Message{Topic: frame.Topic, Epoch: frame.Epoch, Seq: seq, Frame: frame.Frame}
		h.Event(exchange.Live{Messages: []*exchange.Message{m}})
		for h.Work(4096) {
		}
		f.flush()
		for _, slot := range slots {
			then(h, slot, seq)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/conns, "ns/delivery")
	return h
}

// The collector has nothing to walk for connections that idle: neither for those that share a topic
// nor for those that each have topics of their own.
func TestIdleConnectionIsHiddenFromTheCollector(t *testing.T) {
	const n, each = 4000, 3
	h, slots := crowd(t, n, &wirev1.Subscribe{})
	f := &flusher{h: h}
	before := heapBytes()
	for i, slot := range slots {
		for k := range each {
			h.Feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(k + 2), Filter: fmt.Sprintf("user/%d/inbox/%d", i, k)}), 1)
		}
		for h.Work(1000) {
		}
		f.flush()
	}
	per := float64(int64(heapBytes()-before)) / n
	t.Logf("%.1f bytes on the heap for %d more topics of a connection", per, each)
	if got := h.Stats(); got.Subscriptions != n*(1+each) || got.Topics != 1+n*each {
		t.Fatalf("%d subscriptions, %d topics", got.Subscriptions, got.Topics)
	}
	if per > 8 {
		t.Fatalf("%.1f bytes on the heap for each connection", per)
	}
	if n := h.conns.Mores.Taken() + h.tracks.Mores.Taken() + h.starter.pendings.Taken() + h.queues.InUse() + h.replay.reads.Topics(); n != 0 {
		t.Fatalf("%d pieces of idle connections are on the heap", n)
	}
	runtime.KeepAlive(slots)
}
