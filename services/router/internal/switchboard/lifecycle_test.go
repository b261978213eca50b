package switchboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// server is a wire that also carries what edges and stores say: it keeps who subscribed.
type server struct {
	wire
	mu      sync.Mutex
	hears   map[string]func([]byte, func([]byte) error)
	shared  func([]byte)
	said    []string // what the switchboard asked of it, in order
	refuses string   // subject that it refuses subscriptions of
	gone    bool     // not connected
}

func (n *server) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, what)
}

func (n *server) Subscribe(subject string, _ int, handle func([]byte, func([]byte) error)) (func(), error) {
	if subject == n.refuses {
		return nil, errors.New("refused")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hears == nil {
		n.hears = map[string]func([]byte, func([]byte) error){}
	}
	n.hears[subject] = handle
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.hears, subject)
	}, nil
}

func (n *server) Share(subject, _ string, _ int, handle func([]byte)) (func(context.Context) error, error) {
	n.note("share " + subject)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shared = handle
	return func(context.Context) error {
		n.note("leave " + subject)
		return nil
	}, nil
}

func (n *server) Flush(context.Context) error {
	n.note("flush")
	return nil
}

func (n *server) Connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.gone
}

// notices is where stores' notices go to; nil: they are not taken.
func (n *server) notices() func([]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared
}

func (n *server) subjects() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.hears)
}

// send says something to the switchboard as an edge would, and reports whether it was answered.
func (n *server) send(t *testing.T, subject string, m proto.Message) (answered bool) {
	t.Helper()
	n.mu.Lock()
	hear := n.hears[subject]
	n.mu.Unlock()
	if hear == nil {
		t.Fatalf("nobody hears %s", subject)
	}
	hear(encode(t, m), func([]byte) error {
		answered = true
		return nil
	})
	return answered
}

// to is what was sent to one edge.
func (n *server) to(edge string) (frames []*meshv1.RouterFrame) {
	n.wire.mu.Lock()
	defer n.wire.mu.Unlock()
	for _, f := range n.frames {
		if f.subject == bus.EdgeFrames(edge) {
			frames = append(frames, f.RouterFrame)
		}
	}
	return frames
}

// pass lets time go by in a test's own time, until nothing happens any more.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// running is a switchboard that was started, and its NATS.
type running struct {
	*server
	t        *testing.T
	s        *Switchboard
	registry *prometheus.Registry
	lost     []string
}

func start(t *testing.T) *running {
	r := &running{server: &server{}, t: t, registry: prometheus.NewRegistry()}
	r.s = New(Config{
		RouterID: "r", Incarnation: 1, Bus: r.server, BroadcastFrom: 3, Log: quiet(), Registry: r.registry,
		Lost: func(e interest.Edge, connections uint32) { r.lost = append(r.lost, fmt.Sprint(e.ID, " ", connections)) },
	})
	if err := r.s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// wants announces all that an edge wants, from its beginning on.
func (r *running) wants(edge string, topics ...string) {
	r.send(r.t, bus.EdgeAnnounce, &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: 1, Version: 1, Add: topics})
}

func (r *running) stop() {
	if err := r.s.Stop(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// value of a counter or gauge, summed over its labels.
func (r *running) value(name string) (sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), name) {
			found = true
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	if !found {
		r.t.Fatalf("there is no metric %s", name)
	}
	return sum
}

// What a store appended on its own reaches every edge that wants it, each message under its own
// number, and a doubtful topic is checked by those that
// want it. A router takes part once its table can be trusted, no sooner.
func TestWhatStoresAppendIsRouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.wants("e1", "a", "b")
		r.wants("e2", "b")
		pass(interest.Hearing - 2*tickEvery)
		if r.notices() != nil {
			t.Error("notices are taken before the table can be trusted")
		}
		pass(4 * tickEvery)
		if r.notices() == nil || len(r.said) != 1 {
			t.Fatalf("notices are not taken, once, when it can: %q", r.said)
		}
		r.notices()([]byte{0xff})
		bad := r.value("_bad_messages_total")
		r.notices()(encode(t, &meshv1.Stored{
			Runs: []*meshv1.StoredRun{
				{Topic: "a", Epoch: 7, FirstSeq: 41, Records: []*meshv1.StoredRecord{{ExpiresAt: 99, Body: []byte("x")}, {Body: []byte("y")}}},
				{Topic: "nobody's", Epoch: 7, FirstSeq: 1, Records: []*meshv1.StoredRecord{{Body: []byte("z")}}},
			},
			CheckTopics: []string{"b", "nobody's"},
		}))
		synctest.Wait()
		var got []string
		batches := 0
		for _, f := range r.to("e1") {
			if len(f.GetDeliveries()) > 0 {
				batches++
			}
			for _, d := range f.GetDeliveries() {
				got = append(got, fmt.Sprint(d.GetTopic(), " ", d.GetEpoch(), " ", d.GetSeq(), " ", d.GetExpiresAt(), " ", string(d.GetBody())))
			}
		}
		if want := []string{"a 7 41 99 x", "a 7 42 0 y"}; !slices.Equal(got, want) {
			t.Errorf("e1 got %q, want %q", got, want)
		}
		if batches != 1 {
			t.Errorf("a notice left in %d frames", batches)
		}
		for _, edge := range []string{"e1", "e2"} {
			checks := 0
			for _, f := range r.to(edge) {
				checks += len(f.GetCheckTopics())
			}
			if checks != 1 {
				t.Errorf("%s was told of %d topics to check", edge, checks)
			}
		}
		r.stop()
		if bad != 1 || r.value("_bad_messages_total") != 1 {
			t.Errorf("bad messages: %v, then %v; want 1", bad, r.value("_bad_messages_total"))
		}
		if r.value("_head_checks_total") != 2 {
			t.Errorf("%v head checks are counted, want 2", r.value("_head_checks_total"))
		}
		if r.value("_store_notified_messages_total") != 3 {
			t.Errorf("%v messages of stores are counted, want 3", r.value("_store_notified_messages_total"))
		}
	})
}

// A router that stops takes no more notices, hears no more edges, tells those it knows that it
// leaves, and waits until NATS has all of it.
func TestStopTellsTheEdges(t *testing.T) {
	for _, connected := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t)
			r.wants("e1", "a")
			pass(2 * interest.Hearing)
			r.mu.Lock()
			r.gone = !connected
			r.mu.Unlock()
			r.stop()
			want := []string{"share " + bus.Stored, "leave " + bus.Stored}
			if connected {
				want = append(want, "flush")
			}
			if !slices.Equal(r.said, want) {
				t.Errorf("it asked NATS for %q, want %q", r.said, want)
			}
			if n := r.subjects(); n != 0 {
				t.Errorf("%d subscriptions are left", n)
			}
			frames := r.to("e1")
			if len(frames) == 0 || !frames[len(frames)-1].GetLeaving() {
				t.Errorf("the last of %d frames does not say that it leaves", len(frames))
			}
		})
	}
}

// What can't be heard is no start: nothing stays subscribed.
func TestARefusedSubscriptionIsNoStart(t *testing.T) {
	for _, subject := range []string{bus.EdgeAnnounce, bus.EdgeDigest, bus.RouterSnapshot("r")} {
		n := &server{refuses: subject}
		s := New(Config{RouterID: "r", Incarnation: 1, Bus: n, BroadcastFrom: 3, Log: quiet(), Registry: prometheus.NewRegistry()})
		if err := s.Start(t.Context()); err == nil {
			t.Fatalf("%s: started", subject)
		}
		if left := n.subjects(); left != 0 {
			t.Errorf("%s: %d subscriptions are left", subject, left)
		}
		if err := s.edgeQueues.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An edge that falls silent is told of as lost, with the connections that it had; one that said
// goodbye is not. Neither is routed to any more.
func TestSilentEdgesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		for i := range 7 { // few of many: the router does not suspect itself
			r.wants(id(i), "a")
		}
		digest := func(edge string, leaving bool) {
			r.send(t, bus.EdgeDigest, &meshv1.EdgeDigest{
				EdgeId: edge, EdgeIncarnation: 1, Version: 1, Count: 1, Hash: xxhash.Sum64String("a"), Connections: 5, Leaving: leaving,
			})
		}
		for range 5 {
			for i := range 5 {
				digest(id(i), false)
			}
			if r.s.Check() == nil && len(r.s.Edges()) == 7 {
				digest("e5", false)
				digest("e5", true) // goodbye
				digest("e6", false)
			}
			pass(time.Second)
		}
		pass(2 * time.Second)
		for i := range 5 {
			digest(id(i), false)
		}
		pass(time.Second)
		r.s.mu.Lock()
		lost := slices.Clone(r.lost)
		r.s.mu.Unlock()
		if !slices.Equal(lost, []string{"e6 5"}) {
			t.Errorf("lost: %q, want e6 with 5 connections", lost)
		}
		var live []string
		for _, e := range r.s.Interested(nil, "a") {
			live = append(live, e.ID)
		}
		slices.Sort(live)
		if want := []string{"e0", "e1", "e2", "e3", "e4"}; !slices.Equal(live, want) {
			t.Errorf("%q want the topic, should be %q", live, want)
		}
		if len(r.s.Edges()) != 5 || len(r.s.Homes()) != 5 || r.value("_edges") != 5 {
			t.Errorf("%d edges, %d homes, %v in the metric", len(r.s.Edges()), len(r.s.Homes()), r.value("_edges"))
		}
		if n := r.s.ways.edges.Load(); n != 5 {
			t.Errorf("broadcasts reckon with %d edges", n)
		}
		r.stop()
		for _, f := range append(r.to("e5"), r.to("e6")...) {
			if f.GetLeaving() {
				t.Error("an edge that was gone was told that the router leaves")
			}
		}
	})
}

// An edge whose digest differs is asked for what it wants, and what its snapshot says replaces what
// was known. Each part is answered, as the edge waits for that.
func TestADigestThatDiffersBringsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.wants("e1", "a")
		pass(2 * interest.Hearing)
		if n := r.value("_interest_snapshots_requested_total"); n != 0 {
			t.Errorf("%v snapshots were asked for without a reason", n)
		}
		r.send(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "e1", EdgeIncarnation: 1, Version: 1, Count: 2, Hash: 1})
		pass(time.Second)
		if !slices.ContainsFunc(r.to("e1"), (*meshv1.RouterFrame).GetWantSnapshot) || r.value("_interest_snapshots_requested_total") == 0 {
			t.Error("no snapshot was asked for")
		}
		if !r.send(t, bus.RouterSnapshot("r"), &meshv1.EdgeSnapshot{EdgeId: "e1", EdgeIncarnation: 1, Version: 1, Parts: 1, Filters: []string{"b"}}) {
			t.Error("the snapshot was not answered")
		}
		if r.s.Route(&edgequeue.Delivery{Topic: "a"}) != 0 || r.s.Route(&edgequeue.Delivery{Topic: "b"}) != 1 {
			t.Error("the snapshot is not what is wanted now")
		}
		synctest.Wait()
		last := r.to("e1")[len(r.to("e1"))-1]
		if last.GetAppliedVersion() != 1 {
			t.Errorf("version %d was confirmed, want 1", last.GetAppliedVersion())
		}
		r.stop()
	})
}

// Nobody without a usable name becomes an edge, and each such message is counted.
func TestBadMessagesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.hears[bus.EdgeAnnounce]([]byte{0xff}, func([]byte) error { return nil })
		broken := append(encode(t, &meshv1.EdgeAnnounce{EdgeId: "e1", EdgeIncarnation: 1, Version: 1, Add: []string{"a"}}), 0xff)
		r.hears[bus.EdgeAnnounce](broken, func([]byte) error { return nil })
		r.wants("", "a")
		r.wants("with.a.dot", "a")
		if got := r.value("_bad_messages_total"); got != 4 {
			t.Errorf("%v bad messages, want 4", got)
		}
		if len(r.s.Edges()) != 0 {
			t.Errorf("edges %v", r.s.Edges())
		}
		r.stop()
	})
}

// Edges learn which kinds of events anybody subscribes to, once the router knows what all edges
// want; before that, nothing is said.
func TestEdgesLearnWhichEventsAreWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.wants("e1", "a")
		synctest.Wait()
		for _, f := range r.to("e1") {
			if f.GetEvents() != 0 {
				t.Errorf("events %b are wanted before the table is known", f.GetEvents())
			}
		}
		pass(3 * interest.Hearing)
		frames := r.to("e1")
		if got := frames[len(frames)-1].GetEvents(); events.Mask(got)&events.MaskSet == 0 {
			t.Errorf("events %b are wanted", got)
		}
		r.stop()
	})
}

// Each copy is counted once: for each edge that a queue took it for, and for each edge that wants a
// broadcast.
func TestCopiesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		for i := range 4 {
			// all four want one, two the other
			r.wants(id(i), []string{"all", "some"}[:2-min(i/2, 1)]...)
		}
		r.s.Route(&edgequeue.Delivery{Topic: "all", Body: []byte("x")})
		if got := r.value("_deliveries_total"); got != 4 {
			t.Errorf("a broadcast to four edges counts %v", got)
		}
		r.s.Route(&edgequeue.Delivery{Topic: "some", Body: []byte("x")})
		if got := r.value("_deliveries_total"); got != 6 {
			t.Errorf("two more copies count as %v", got-4)
		}
		if got := r.value("_broadcast_topics"); got != 1 {
			t.Errorf("%v topics are broadcast", got)
		}
		pass(2 * forgetEvery * tickEvery)
		if got := r.value("_broadcast_topics"); got != 0 {
			t.Errorf("%v topics are broadcast though nothing was published for long", got)
		}
		r.stop()
	})
}

// An edge hears from a router at least every 500 ms, or it would take the router for gone and look
// at the log for nothing.
func TestEdgesHearBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.wants("e1", "a")
		pass(interest.Hearing)
		for range 10 {
			before := len(r.to("e1"))
			pass(500*time.Millisecond + tickEvery)
			if len(r.to("e1")) == before {
				t.Fatal("600 ms without a frame")
			}
		}
		r.stop()
	})
}

// What an edge wanted that is gone is freed within seconds.
func TestWhatAnEdgeWantedIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		topics := make([]string, 5000)
		for i := range topics {
			topics[i] = fmt.Sprint("t/", i)
		}
		r.wants("e1", topics...)
		r.send(t, bus.EdgeDigest, &meshv1.EdgeDigest{EdgeId: "e1", EdgeIncarnation: 1, Leaving: true})
		pass(5 * time.Second)
		r.s.mu.Lock()
		more := r.s.table.Sweep()
		r.s.mu.Unlock()
		if more {
			t.Error("there is something left to free")
		}
		r.stop()
	})
}

// An edge has its queue before anybody can find it: what is routed while its first announcement is
// taken in reaches it.
func TestAnEdgeThatIsFoundHasAQueue(t *testing.T) {
	w := newWorld(t, 0)
	routed := 0
	receiver(w.s, decode, func(now time.Time, m *meshv1.EdgeAnnounce) {
		w.s.announce(now, m)
		routed = w.s.Route(&edgequeue.Delivery{Topic: "a", Body: []byte("x")})
	})(encode(t, &meshv1.EdgeAnnounce{EdgeId: "e1", EdgeIncarnation: 1, Version: 1, Add: []string{"a"}}))
	got := 0
	for _, f := range w.end() {
		got += len(f.GetDeliveries())
	}
	if routed != 1 || got != 1 {
		t.Errorf("found by %d, and %d messages reached it", routed, got)
	}
}

// A stop that has no time left says so.
func TestAStopWithoutTimeFails(t *testing.T) {
	r := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := r.s.edgeQueues.Leave(context.Background()); err != nil {
		t.Error(err)
	}
}
