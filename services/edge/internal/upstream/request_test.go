package upstream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

// ask sends a request to an edge, as a router does.
func ask(t *testing.T, from *bus.Bus, edge string, req *meshv1.EdgeRequest) *meshv1.EdgeReply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
	defer cancel()
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	reply := &meshv1.EdgeReply{}
	if data, err = from.Request(ctx, bus.EdgeRequest(edge), data); err == nil {
		err = proto.Unmarshal(data, reply)
	}
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestEveryLoopIsAskedAndSummedUp(t *testing.T) {
	w := newWorld(t)
	_, loops := w.edge("e1", 3)
	for i, l := range loops {
		l.onPost = func(e exchange.Event) {
			switch e := e.(type) {
			case exchange.Count:
				e.Reply([]uint64{1, uint64(i)}[:len(e.Topics)])
			case exchange.Disconnect:
				if e.ClientID == "ann" && e.Code == wirev1.Code_CODE_FORBIDDEN && e.Reason == "why" {
					e.Reply(2)
				}
			case exchange.SetProfile:
				if p := e.Profile; e.User == "client:ann" && p != nil && p.Features["sport"] == 1 && len(p.Vector) == 2 {
					e.Reply(1)
				}
			}
		}
	}
	b := w.nats.Bus("asks")
	count := ask(t, b, "e1", &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Count{Count: &meshv1.CountSubscribers{Topics: []string{"a", "b"}}}})
	if fmt.Sprint(count.GetCounts()) != "[3 3]" {
		t.Errorf("counts %v", count.GetCounts())
	}
	gone := ask(t, b, "e1", &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Disconnect{Disconnect: &meshv1.DisconnectClients{
		ClientId: "ann", Code: wirev1.Code_CODE_FORBIDDEN, Reason: "why",
	}}})
	if gone.GetDisconnected() != 6 {
		t.Errorf("%d disconnected", gone.GetDisconnected())
	}
	profiled := ask(t, b, "e1", &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Profile{Profile: &meshv1.ReplaceProfile{
		User: "client:ann", Profile: map[string]float64{"sport": 1}, Vector: []float32{1, 2},
	}}})
	if profiled.GetProfiled() != 3 {
		t.Errorf("%d have another profile", profiled.GetProfiled())
	}
	// A loop that does not answer costs what it would have said, not the answer.
	loops[1].onPost = nil
	count = ask(t, b, "e1", &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Count{Count: &meshv1.CountSubscribers{Topics: []string{"a", "b"}}}})
	if fmt.Sprint(count.GetCounts()) != "[2 2]" {
		t.Errorf("counts %v", count.GetCounts())
	}
	yield := ask(t, b, "e1", &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Yield{Yield: &meshv1.YieldSession{User: "u", Name: "s"}}})
	if yield.GetYielded() {
		t.Error("yielded a session that is not held")
	}
}

// moves attaches a session at one edge and then at another, and has the first one store a position
// when it is asked to yield.
func moves(t *testing.T, from, to *Mesh, old, l *loop, name string) (first, second exchange.Attached, yielded bool) {
	t.Helper()
	from.Attach(conn(0, 1), "u", name, 0, 1, "")
	if first = next[exchange.Attached](t, old); first.Err != nil || first.Resumed {
		t.Fatalf("%+v", first)
	}
	to.Attach(conn(0, 2), "u", name, 0, 2, "")
	edgetest.WaitFor(t, "the session's move", func() error {
		if _, ok := take[exchange.Yield](old); ok {
			yielded = true
			from.Save(conn(0, 1), 0, &meshv1.SessionWrite{
				User: "u", Name: name, Generation: first.Generation, Detach: true, Cursors: []*meshv1.SessionCursor{{Topic: "room/1", Floor: 7}},
			}, true)
		}
		var ok bool
		if second, ok = take[exchange.Attached](l); !ok {
			return fmt.Errorf("asked to yield: %v", yielded)
		}
		return nil
	})
	return first, second, yielded
}

func TestSessionIsYieldedToAnotherEdge(t *testing.T) {
	w := newWorld(t)
	m1, loops1 := w.edge("e1", 1)
	m2, loops2 := w.edge("e2", 1)
	var name string
	var second exchange.Attached
	for tries := 1; ; tries++ {
		name = fmt.Sprint("s", tries)
		first, now, yielded := moves(t, m1, m2, loops1[0], loops2[0], name)
		if second = now; second.Err != nil || !second.Resumed || second.Generation <= first.Generation {
			t.Fatalf("%+v after %+v", second, first)
		}
		if floor := second.Cursors["room/1"].GetFloor(); yielded && floor == 7 {
			break
		}
		if tries == 10 { // on a machine that stands still the holder's time may be over
			t.Fatalf("asked to yield: %v, %+v", yielded, second)
		}
	}
	// An edge that NATS does not reach keeps nobody waiting, and learns of its loss by its next
	// write.
	w.nats.Down()
	m1.Attach(conn(0, 3), "u", name, 0, 3, "")
	if third := next[exchange.Attached](t, loops1[0]); third.Err != nil || third.Generation <= second.Generation {
		t.Errorf("%+v", third)
	}
	m2.Save(conn(0, 2), 5, &meshv1.SessionWrite{User: "u", Name: name, Generation: second.Generation}, true)
	next[exchange.Detached](t, loops2[0])
	if s := next[exchange.Saved](t, loops2[0]); s.Ref != 5 || code.Of(s.Err) != wirev1.Code_CODE_SESSION_TAKEN_OVER {
		t.Errorf("%+v", s)
	}
}

func TestFilterJoinedWithoutAStoreIsFollowedOnceItIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/0") // routers were heard
	w.store.Publish("room/1", 2)
	w.store.Down()
	m.Join(conn(0, 1), 3, "room/+", false, 0)
	if j := next[exchange.Joined](t, loops[0]); j.Err != nil {
		t.Errorf("%+v", j)
	}
	w.store.Up()
	edgetest.WaitFor(t, "the filter's topics", func() error {
		known := make(chan bool)
		m.ops.Do(func() { known <- m.feed.IsBased("room/+") })
		if !<-known {
			return fmt.Errorf("not known yet")
		}
		return nil
	})
	w.store.Publish("room/1", 1)
	w.store.Publish("room/2", 1)
	w.router.Lose()
	w.router.Beat()
	waitLive(t, loops[0], "room/1", "3")
	waitLive(t, loops[0], "room/2", "1")
}

func TestRestartedEdgeTakesNoFramesOfItsPast(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 1)
	join(t, m, loops[0], "room/1")
	data, err := proto.Marshal(&meshv1.RouterFrame{
		RouterId: "r1", RouterIncarnation: uint64(time.Now().UnixMicro()), EdgeIncarnation: m.cfg.Incarnation - 1, N: 77, Deliveries: unstored(t, "room/1", 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := w.nats.Bus("past")
	for _, frame := range [][]byte{data, []byte("garbage")} {
		if err := b.Publish(bus.EdgeFrames("e1"), frame); err != nil {
			t.Fatal(err)
		}
	}
	edgetest.WaitFor(t, "frames to be dropped", func() error {
		if f, bad := m.stats.ForeignFrames.Load(), m.stats.BadFrames.Load(); f != 1 || bad != 1 {
			return fmt.Errorf("%d foreign, %d bad", f, bad)
		}
		return nil
	})
	if got := loops[0].live("room/1"); got != "" {
		t.Errorf("got %q", got)
	}
}

func FuzzReceive(f *testing.F) {
	good, _ := proto.Marshal(&meshv1.RouterFrame{RouterId: "r", EdgeIncarnation: 1, N: 2, Deliveries: []*meshv1.Delivery{
		{Topic: "room/1", Epoch: 1, Seq: 9, Body: []byte{1}}, {Topic: "x"},
	}, CheckTopics: []string{"room/1"}, WantSnapshot: true})
	f.Add(good)
	f.Add([]byte{0x32, 0xff})
	nameless, _ := proto.Marshal(&meshv1.RouterFrame{RouterId: "r", EdgeIncarnation: 1, N: 2, Deliveries: []*meshv1.Delivery{{Seq: 1, Epoch: 1}, {}}, CheckTopics: []string{""}})
	f.Add(nameless)
	b := bus.New(bus.Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := New(Config{ID: "e", Incarnation: 1, Bus: b, Durable: durable, Connections: func() int { return 0 }, Log: quiet, Traced: true})
		l := &loop{}
		m.SetLoops([]exchange.Loop{l})
		m.group = lifecycle.NewGroup(t.Context())
		m.table.Join(m.now, 0, "room/1")
		m.feed.Add(0, "room/1")
		m.feed.Add(0, "+/2")
		m.feed.Expect("room/1")
		if frame := (&routerlink.Frame{}); frame.Decode(data) && frame.WantSnapshot {
			return // there is no NATS to answer over
		}
		m.frame(data)
		m.handOn()
	})
}

// A router asks how much waits for a session's connection. An edge that does not have it says
// nothing, and who asks goes on without.
func TestDepthOfASessionsQueue(t *testing.T) {
	w := newWorld(t)
	m, loops := w.edge("e1", 2)
	loops[1].onPost = func(e exchange.Event) {
		if d, ok := e.(exchange.Depth); ok && d.Conn == conn(1, 7) {
			d.Reply(3, 4096)
		}
	}
	m.Attach(conn(1, 7), "u", "s", 0, 1, "")
	if a := next[exchange.Attached](t, loops[1]); a.Err != nil {
		t.Fatal(a.Err)
	}
	depth := func(name string) *meshv1.EdgeRequest {
		return &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_SessionQueue{SessionQueue: &meshv1.SessionQueue{User: "u", Name: name}}}
	}
	if q := ask(t, w.nats.Bus("asks"), "e1", depth("s")).GetQueue(); q.GetMessages() != 3 || q.GetBytes() != 4096 {
		t.Errorf("%v waits", q)
	}
	if r, err := m.reply(t.Context(), depth("other")); err == nil {
		t.Errorf("%v of a session that nobody holds", r)
	}
}
