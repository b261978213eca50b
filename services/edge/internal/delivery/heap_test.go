package delivery

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/kept"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// hoarding is a mesh that keeps what it is given until it is answered, as the real one does, and
// nothing else.
type hoarding struct {
	exchange.Mesh
	h         *Hub
	heads     int // of each filter
	cursors   int // of each session
	publishes []*meshv1.ClientPublish_Item
	claims    []*meshv1.ClaimOp
	silent    bool // claims are not answered
}

func (k *hoarding) Join(conn exchange.Conn, sub uint32, filter string, _ bool, _ int) {
	if k.heads < 0 {
		return
	}
	var heads []exchange.Head
	for i := range k.heads {
		heads = append(heads, exchange.Head{Topic: fmt.Sprint(filter[:len(filter)-1], i), Epoch: upstreamtest.BaseEpoch, Oldest: 1})
	}
	k.h.Event(exchange.Joined{Conn: conn, Sub: sub, Heads: heads})
}

func (k *hoarding) Attach(conn exchange.Conn, _, _ string, _ uint32, _ uint64, _ string) {
	e := exchange.Attached{Conn: conn, Generation: 1, Resumed: true, Cursors: map[string]*meshv1.SessionCursor{}}
	for i := range k.cursors {
		name := fmt.Sprint("many/", i)
		e.Cursors[name] = &meshv1.SessionCursor{Topic: name, Epoch: upstreamtest.BaseEpoch, Floor: 7}
		e.Filters = append(e.Filters, fmt.Sprint("filter/", i, "/+"))
	}
	k.h.Event(e)
}

func (k *hoarding) JoinGroup(conn exchange.Conn, sub uint32, _ *exchange.GroupJoin) {
	k.h.Event(exchange.GroupJoined{Conn: conn, Sub: sub})
}

func (k *hoarding) Publish(_ exchange.Conn, _ string, _ uint32, item *meshv1.ClientPublish_Item) {
	k.publishes = append(k.publishes, item)
}

func (k *hoarding) Claim(conn exchange.Conn, id uint32, op *meshv1.ClaimOp) {
	if k.claims = append(k.claims, op); k.silent {
		return
	}
	k.claims = k.claims[:0]
	k.h.Event(exchange.Claimed{Conn: conn, ID: id, Result: &meshv1.ClaimResult{State: &wirev1.ClaimState{Resource: op.GetResource(), State: granted, Token: 1}}})
}

func (k *hoarding) Leave(uint16, string)                                   {}
func (k *hoarding) Read(uint16, string, uint64, uint64, uint64, int)       {}
func (k *hoarding) Save(exchange.Conn, uint32, *meshv1.SessionWrite, bool) {}
func (k *hoarding) EndClaims(uint64)                                       {}
func (k *hoarding) LeaveGroup(exchange.Conn, uint32)                       {}
func (k *hoarding) SettleGroup([]exchange.GroupSettled)                    {}

// hoard is a hub whose clients have it keep as much as they can.
type hoard struct {
	t    *testing.T
	h    *Hub
	mesh *hoarding
	f    *flusher
}

func newHoard(t *testing.T, mesh *hoarding, keep kept.Config) *hoard {
	open := &pushmeshv1.Policy{Durable: true, ClientPublish: true, MaxPayload: 256 << 10, Claims: &pushmeshv1.ClaimPolicy{Clients: true}}
	table := policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: open}})
	mesh.h = newHub(t, Config{Mesh: mesh, PolicyFor: table.For, Limits: Limits{PublishWindow: 1 << 10, WildcardTopics: 1 << 20}, Kept: keep})
	mesh.h.SetTime(1, wallStart)
	return &hoard{t: t, h: mesh.h, mesh: mesh, f: &flusher{h: mesh.h}}
}

func (o *hoard) connect(hello *wirev1.Hello) (slot uint32) {
	slot, _ = o.h.Open()
	hello.Version, hello.HeartbeatMs = 1, 600_000
	o.feed(slot, frameOf(o.t, wirev1.FrameType_FRAME_TYPE_HELLO, hello))
	return slot
}

func (o *hoard) feed(slot uint32, b []byte) {
	for more := true; more && len(b) > 0; {
		var used int
		used, more = o.h.Feed(slot, b, 100)
		b = b[used:]
	}
	o.work()
}

func (o *hoard) work() {
	for o.h.Work(1000) {
	}
	o.f.flush()
}

func (o *hoard) subscribe(slot uint32, m *wirev1.Subscribe) {
	m.Id = 1
	o.feed(slot, frameOf(o.t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m))
}

// until has one more kept again and again, until the bytes are charged that all may have or
// something is refused.
func (o *hoard) until(bytes int64, one func(i int)) {
	for i := 0; o.h.kept.Bytes() < bytes; i++ {
		one(i)
		for why, n := range o.h.stats.Refused {
			if n == 0 {
				continue
			}
			if code := wirev1.Code(why); code != wirev1.Code_CODE_OVERLOADED {
				o.t.Fatalf("%d bytes are charged, and then one is refused: %v", o.h.kept.Bytes(), code)
			}
			return
		}
	}
}

// memory is what the process takes: the heap, and what of the hub lies beside it.
func (o *hoard) memory() int64 {
	h := o.h
	off := h.conns.Slab.Bytes() + h.subs.Slab.Bytes() + h.subs.Mores.Bytes() + h.tracks.Slab.Bytes() + h.texts.Bytes() + h.arrays.Bytes() + h.topics.Slab.Bytes() + h.kept.Memory()
	return int64(heapBytes()) + int64(off)
}

// Whatever clients have an edge keep, the memory that this takes is at most what they are charged
// for it, and 1 MiB.
func TestMemoryKeptIsWhatIsCharged(t *testing.T) {
	const bound, slack = 16 << 20, 1 << 20
	long := strings.Repeat("n", 200)
	for what, one := range map[string]struct {
		mesh  hoarding
		drive func(o *hoard)
	}{
		"publishes on their way": {drive: func(o *hoard) {
			slot := o.connect(&wirev1.Hello{})
			o.until(bound, func(i int) {
				o.feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: uint32(i + 1), Topic: "open/1", Payload: make([]byte, 60<<10)}))
			})
		}},
		"short publishes on their way": {drive: func(o *hoard) {
			slot := uint32(0)
			o.until(bound, func(i int) {
				if i%1000 == 0 {
					slot = o.connect(&wirev1.Hello{})
				}
				o.feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "open/1", Headers: map[string]string{"a": "b"}}))
			})
		}},
		"claims": {drive: func(o *hoard) {
			slot := uint32(0)
			o.until(bound/4, func(i int) {
				if i%64 == 0 {
					slot = o.connect(&wirev1.Hello{})
				}
				o.feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: uint32(i + 1), Resource: fmt.Sprint("open/", i)}))
			})
		}},
		"claims that are not answered": {mesh: hoarding{silent: true}, drive: func(o *hoard) {
			slot := uint32(0)
			o.until(bound/4, func(i int) {
				if i%16 == 0 {
					slot = o.connect(&wirev1.Hello{})
				}
				o.feed(slot, frameOf(t, wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: uint32(i + 1), Resource: fmt.Sprint("open/", long, i), Successor: ""}))
			})
		}},
		"positions of Subscribes that wait": {mesh: hoarding{heads: -1}, drive: func(o *hoard) {
			o.until(bound, func(i int) {
				var all []*wirev1.Position
				for k := range 1000 {
					all = append(all, &wirev1.Position{Topic: fmt.Sprint("many/", k), Epoch: 1, Seq: 5})
				}
				o.subscribe(o.connect(&wirev1.Hello{}), &wirev1.Subscribe{Filter: "many/+", Positions: all})
			})
		}},
		"topics of wildcards": {mesh: hoarding{heads: 1000}, drive: func(o *hoard) {
			o.until(bound, func(i int) {
				o.subscribe(o.connect(&wirev1.Hello{}), &wirev1.Subscribe{Filter: fmt.Sprint("many/", i, "/+"), Start: wirev1.Start_START_EARLIEST})
			})
		}},
		"topics that appear": {drive: func(o *hoard) {
			slot := o.connect(&wirev1.Hello{})
			o.subscribe(slot, &wirev1.Subscribe{Filter: "many/+"})
			o.until(bound/4, func(i int) {
				o.h.Event(exchange.Live{Messages: []*exchange.Message{upstreamtest.Encode(fmt.Sprint("many/", i), upstreamtest.BaseEpoch, 1, "x")}})
				o.work()
			})
		}},
		"messages of groups": {drive: func(o *hoard) {
			slot := o.connect(&wirev1.Hello{})
			o.subscribe(slot, &wirev1.Subscribe{Filter: "room/1", Group: "g", Ack: true})
			ref := o.h.conns.Get(slot).Groups[0].Ref
			o.until(bound, func(i int) {
				m := upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, uint64(i+1), long)
				o.h.Event(exchange.Assigned{Conn: o.h.Handle(slot), Sub: ref, Messages: []*exchange.Message{m}, Attempts: []uint32{0}})
			})
			o.work()
		}},
		"messages of groups that timed out": {drive: func(o *hoard) {
			body := strings.Repeat("x", 4<<10)
			for range 10 {
				slot := o.connect(&wirev1.Hello{ReceiveWindow: 1024})
				o.subscribe(slot, &wirev1.Subscribe{Filter: "room/1", Group: "g", Ack: true})
				ref := o.h.conns.Get(slot).Groups[0].Ref
				for i := range uint64(700) {
					m := upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, i+1, body)
					o.h.Event(exchange.Assigned{Conn: o.h.Handle(slot), Sub: ref, Messages: []*exchange.Message{m}, Attempts: []uint32{0}})
					o.work()
				}
			}
			o.h.SetTime(int64(time.Minute), wallStart+60e6)
			for o.h.Tick(1000) {
			}
			o.work()
		}},
		"positions of sessions": {mesh: hoarding{cursors: 1000}, drive: func(o *hoard) {
			o.until(bound, func(i int) { o.connect(&wirev1.Hello{ClientId: fmt.Sprint(i), Session: "s"}) })
		}},
	} {
		t.Run(what, func(t *testing.T) {
			o := newHoard(t, &one.mesh, kept.Config{Connection: bound})
			before := o.memory()
			one.drive(o)
			grown, charged := o.memory()-before, o.h.kept.Bytes()
			t.Logf("%d bytes more for %d that are charged: %.2f times", grown, charged, float64(grown)/float64(charged))
			if charged < bound/8 || grown > charged+slack {
				t.Fatalf("%d bytes more, and %d are charged", grown, charged)
			}
			for slot := range o.h.conns.Len() {
				o.h.Gone(slot)
			}
			o.work()
			freeOver(o.h)
			if n := o.h.kept.Bytes(); n != 0 {
				t.Fatalf("%d bytes are charged to nobody", n)
			}
			runtime.KeepAlive(o)
		})
	}
}

// A client that ACKs nothing has the heap grow by what its windows may keep, and by 64 bytes for
// each further seq, and not by its messages: compared with the heap, with a tolerance of 2 MiB.
func TestTheHeapKeepsNoMoreThanIsCharged(t *testing.T) {
	const n, size, bound, tolerance = 20_000, 4 << 10, 4 << 20, 2 << 20
	w := newWorld(t, Limits{})
	cfg := w.h.cfg
	cfg.Kept = kept.Config{Windows: bound}
	h := newHub(t, cfg)
	slot, _ := h.Open()
	f := &flusher{h: h}
	h.SetTime(w.now, wallStart)
	for _, b := range [][]byte{
		frameOf(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, HeartbeatMs: 600_000, ReceiveWindow: n}),
		frameOf(t, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true}),
	} {
		h.Feed(slot, b, 100)
	}
	for _, e := range w.mail {
		h.Event(e)
	}
	w.mail = nil
	for h.Work(1000) {
	}
	f.flush()
	before := heapBytes()
	text := strings.Repeat("x", size)
	for seq := uint64(1); seq <= n; seq++ {
		frame := upstreamtest.Encode("room/1", upstreamtest.BaseEpoch, seq, text)
		h.Event(exchange.Live{Messages: []*exchange.Message{frame}})
		for h.Work(1000) {
		}
		f.flush()
	}
	grown, s := int64(heapBytes()-before), h.Stats()
	t.Logf("%d bytes more on the heap for %d messages of %d bytes, %d are charged, %d were released", grown, s.Unacked, size, s.KeptBytes, s.Released)
	if s.Unacked != n || grown > s.KeptBytes+tolerance || s.KeptBytes > bound+64*n+2*size {
		t.Fatalf("%d un-ACKed have the heap grow by %d, %d are charged", s.Unacked, grown, s.KeptBytes)
	}
	runtime.KeepAlive(h)
}
