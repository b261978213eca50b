package switchboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

// wire is NATS as edges see it: frames in the order in which they were sent. Where it keeps none it
// counts.
type wire struct {
	mu     sync.Mutex
	frames []sent
	n      int
	forget bool
}

type sent struct {
	subject string
	*meshv1.RouterFrame
}

func (w *wire) Publish(subject string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.forget {
		return nil
	}
	f := &meshv1.RouterFrame{}
	err := proto.Unmarshal(data, f)
	w.frames = append(w.frames, sent{subject, f})
	return err
}

func (w *wire) Subscribe(string, int, func([]byte, func([]byte) error)) (func(), error) {
	return func() {}, nil
}

func (w *wire) Share(string, string, int, func([]byte)) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}
func (w *wire) Flush(context.Context) error { return nil }
func (w *wire) Connected() bool             { return true }
func (w *wire) Check() error                { return nil }

// world is a switchboard and the edges that it hears.
type world struct {
	t       testing.TB
	s       *Switchboard
	wire    *wire
	version map[string]uint64
	lives   map[string]uint64 // how often an edge left
}

func newWorld(t testing.TB, edges int) *world {
	w := &world{t: t, wire: &wire{}, version: map[string]uint64{}, lives: map[string]uint64{}}
	w.s = New(Config{RouterID: "r", Incarnation: 1, Bus: w.wire, BroadcastFrom: 3, Log: quiet(), Registry: prometheus.NewRegistry()})
	for i := range edges {
		w.announce(id(i), nil, nil)
	}
	return w
}

func id(edge int) string { return fmt.Sprintf("e%d", edge) }

func (w *world) announce(edge string, add, remove []string) {
	w.version[edge]++
	receiver(w.s, decode, w.s.announce)(encode(w.t, &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: w.lives[edge] + 1, Version: w.version[edge], Add: add, Remove: remove}))
}

func (w *world) leave(edge string) {
	receiver(w.s, decode, w.s.digest)(encode(w.t, &meshv1.EdgeDigest{EdgeId: edge, EdgeIncarnation: w.lives[edge] + 1, Leaving: true}))
	delete(w.version, edge)
	w.lives[edge]++
}

func (w *world) end() []sent {
	if err := w.s.edgeQueues.Leave(context.Background()); err != nil {
		w.t.Error(err)
	}
	w.wire.mu.Lock()
	defer w.wire.mu.Unlock()
	return w.wire.frames
}

func TestATopicThatMostEdgesWantIsBroadcast(t *testing.T) {
	w := newWorld(t, 4)
	w.announce("e0", []string{"a"}, nil)
	broadcasts := func() int {
		before := w.s.ways.len()
		if n := w.s.Route(&edgequeue.Delivery{Topic: "a", Body: []byte("x")}); n == 0 {
			t.Fatal("nobody wants it")
		}
		if after := w.s.ways.len(); after != before && after != 1-before {
			t.Fatalf("%d topics are broadcast", after)
		}
		return w.s.ways.len()
	}
	for _, step := range []struct {
		edge    int
		add     bool
		want    int
		because string
	}{
		{1, true, 0, "two edges"},
		{2, true, 1, "three of four"},
		{2, false, 1, "half of them, and it is already"},
		{1, false, 0, "one edge"},
		{1, true, 0, "half of them, and it is not"},
	} {
		if step.add {
			w.announce(id(step.edge), []string{"a"}, nil)
		} else {
			w.announce(id(step.edge), nil, []string{"a"})
		}
		if got := broadcasts(); got != step.want {
			t.Errorf("%s: broadcast %d", step.because, got)
		}
	}
	w.announce("e2", []string{"a"}, nil)
	if broadcasts() != 1 {
		t.Error("three of four again")
	}
	for i := 4; i < 9; i++ { // more and more edges that don't want it
		w.announce(id(i), nil, nil)
	}
	if broadcasts() != 0 {
		t.Error("a third of all edges")
	}
	w.end()
}

func TestQuietTopicsAreForgotten(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 3 {
		w.announce(id(i), []string{"#"}, nil)
	}
	for i := range 1000 {
		w.s.Route(&edgequeue.Delivery{Topic: fmt.Sprint("t/", i), Body: []byte("x")})
	}
	if n := w.s.ways.len(); n != 1000 {
		t.Errorf("%d of 1,000", n)
	}
	for range 2 * forgetEvery {
		w.s.ways.tick()
		w.s.Route(&edgequeue.Delivery{Topic: "t/1", Body: []byte("x")})
	}
	if n := w.s.ways.len(); n != 1 {
		t.Errorf("%d are left", n)
	}
	w.end()
}

// Producers publish to topics, each of its own, while edges come, go and change their minds.
// Whoever wants a topic all the time gets all of it in order, whichever way it went; durable or not
// makes no difference here.
func TestEachEdgeHearsAProducerInOrder(t *testing.T) {
	for seed := range uint64(10) {
		churn(t, seed)
	}
}

const (
	faithful  = 3 // edges that want every topic from the beginning on
	producers = 3
	perTopic  = 300
)

func churn(t *testing.T, seed uint64) {
	w := newWorld(t, faithful)
	for i := range faithful {
		w.announce(id(i), []string{"p/#"}, nil)
	}
	for p := range producers { // with as many edges as want it, this goes to all
		w.s.Route(&edgequeue.Delivery{Topic: fmt.Sprintf("p/%d/0", p), Seq: 1, Body: []byte("x")})
	}
	var wg sync.WaitGroup
	for p := range producers {
		dice := rand.New(rand.NewPCG(seed, uint64(p)))
		wg.Go(func() {
			seq := [2]uint64{1, 0}
			for range 2 * perTopic {
				k := dice.IntN(len(seq))
				seq[k]++
				w.s.Route(&edgequeue.Delivery{Topic: fmt.Sprintf("p/%d/%d", p, k), Epoch: uint64(k), Seq: seq[k], Body: []byte("x")})
				for range dice.IntN(3) {
					runtime.Gosched()
				}
			}
		})
	}
	dice := rand.New(rand.NewPCG(seed, 99))
	for range 200 { // more edges, up to seven: then three are less than half
		e := id(faithful + dice.IntN(4))
		switch wanted, there := w.version[e]; {
		case dice.IntN(3) == 0 && there:
			w.leave(e)
		case wanted%2 == 1:
			w.announce(e, []string{"p/+/0"}, nil)
		default:
			w.announce(e, nil, []string{"p/+/0"})
		}
		runtime.Gosched()
	}
	wg.Wait()
	frames := w.end()
	wide := 0
	for _, f := range frames {
		wide += int(min(f.GetBroadcast(), 1))
	}
	for i := range faithful {
		got := heard(t, seed, bus.EdgeFrames(id(i)), frames)
		if got != producers*(2*perTopic+1) {
			t.Fatalf("seed %d: %s got %d messages", seed, id(i), got)
		}
	}
	if wide == 0 {
		t.Errorf("seed %d: none of %d frames is a broadcast: nothing was tested", seed, len(frames))
	}
}

// heard checks what one edge hears, and counts its messages.
func heard(t *testing.T, seed uint64, subject string, frames []sent) (n int) {
	last := map[string]uint64{}
	for _, f := range frames {
		if f.subject != subject && f.subject != bus.EveryEdgeFrames {
			continue
		}
		for _, d := range f.GetDeliveries() {
			if d.GetSeq() != last[d.GetTopic()]+1 {
				t.Fatalf("seed %d: %s: topic %s: %d after %d", seed, subject, d.GetTopic(), d.GetSeq(), last[d.GetTopic()])
			}
			last[d.GetTopic()] = d.GetSeq()
			n++
		}
	}
	return n
}

// What a message costs on its way from Route into NATS does not grow with the edges: where a race
// detector does not have pools lose what they hold, nothing is made at all.
func TestRouteMakesNoGarbage(t *testing.T) {
	w := newWorld(t, 40)
	w.wire.mu.Lock()
	w.wire.forget = true
	w.wire.mu.Unlock()
	for i := range 40 {
		topics := []string{"all"}
		if i < 20 { // less than two thirds
			topics = append(topics, "many")
		}
		w.announce(id(i), topics, nil)
	}
	body := make([]byte, 128)
	for _, topic := range []string{"many", "all"} {
		d := &edgequeue.Delivery{Topic: topic, Body: body}
		route := func() {
			for range 100 {
				w.s.Route(d)
			}
		}
		route()
		if got := testing.AllocsPerRun(50, route) / 100; got > 5 {
			t.Errorf("%s: %v allocations for a message", topic, got)
		}
	}
	w.end()
}
