package edgequeue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// wire is a NATS connection as edges see it: whatever its subject, a frame stands behind those that
// were published before.
type wire struct {
	mu     sync.Mutex
	frames []sent
	dice   *rand.Rand // holds senders up, and refuses; nil: neither
	lost   int
}

type sent struct {
	subject string
	*meshv1.RouterFrame
}

func (w *wire) Publish(subject string, data []byte) error {
	f := &meshv1.RouterFrame{}
	if err := proto.Unmarshal(data, f); err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dice != nil {
		for range w.dice.IntN(4) {
			runtime.Gosched()
		}
		if w.dice.IntN(20) == 0 {
			w.lost++
			return fmt.Errorf("lost")
		}
	}
	w.frames = append(w.frames, sent{subject, f})
	return nil
}

func (w *wire) take() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.frames
	w.frames = nil
	return out
}

func edges(n int) (all []interest.Edge) {
	for i := range n {
		all = append(all, interest.Edge{ID: fmt.Sprintf("e%d", i), Incarnation: 7})
	}
	return all
}

func TestBroadcastsAreNumberedAndEveryEdgeHearsOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		o := New(Config{RouterID: "r", Incarnation: 5, Bus: w})
		for _, e := range edges(2) {
			o.Open(e)
		}
		for n := uint64(1); n <= 3; n++ {
			o.Broadcast(delivery(10))
			synctest.Wait()
			all := w.take()
			want := &meshv1.RouterFrame{RouterId: "r", RouterIncarnation: 5, Broadcast: n, Deliveries: all[0].GetDeliveries()}
			if len(all) != 1 || all[0].subject != bus.EveryEdgeFrames || len(all[0].GetDeliveries()) != 1 || !proto.Equal(all[0].RouterFrame, want) {
				t.Fatalf("broadcast %d: %v", n, all)
			}
		}
		<-time.After(time.Second) // of the bubble's clock
		o.Beat(time.Now())
		synctest.Wait()
		all := w.take()
		if len(all) != 2 {
			t.Fatalf("%d beats", len(all))
		}
		for _, f := range all {
			if f.GetLastBroadcast() != 3 || f.GetBroadcast() != 0 || f.GetN() != 0 || f.GetEdgeIncarnation() != 7 {
				t.Errorf("beat %v", f)
			}
		}
		if err := o.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestABroadcastThatIsNotSentUsesItsNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		o := New(Config{RouterID: "r", Incarnation: 5, Bus: w, QueueBytes: 100})
		o.Open(edge)
		if o.Broadcast(delivery(200)) { // larger than the queue: a gap
			t.Error("taken")
		}
		synctest.Wait()
		deliver(o, edge, delivery(1))
		synctest.Wait()
		if all := w.take(); len(all) != 1 || all[0].GetLastBroadcast() != 1 || all[0].GetN() != 1 {
			t.Errorf("after a gap: %v", all)
		}
		if err := o.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Topics change between the two ways at random, with Seal in between; batches get lost; the sender
// is held up. What an edge gets of a topic is in order, and every loss shows in the numbers.
func TestOrderHoldsWhereTopicsChangeTheirWay(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) { changeWays(t, seed) })
	}
}

func changeWays(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	w := &wire{dice: rand.New(rand.NewPCG(seed, 2))}
	o := New(Config{RouterID: "r", Incarnation: 5, Bus: w})
	all := edges(3)
	for _, e := range all {
		o.Open(e)
	}
	const topics = 4
	var seq [topics]uint64
	var wide [topics]bool
	for range 400 {
		topic := dice.IntN(topics)
		if dice.IntN(8) == 0 {
			wide[topic] = !wide[topic]
			o.CloseBatches()
		}
		seq[topic]++
		size := 10
		if dice.IntN(50) == 0 {
			size = maxBatch / 2 // batches get full
		}
		d := AppendDelivery(nil, &Delivery{Topic: fmt.Sprint(topic), Epoch: 1, Seq: seq[topic], Body: make([]byte, size)})
		if wide[topic] {
			o.Broadcast(d)
		} else {
			for _, e := range all {
				deliver(o, e, d)
			}
		}
		for range dice.IntN(3) {
			runtime.Gosched()
		}
	}
	if err := o.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	frames := w.take()
	missing := 0
	for _, e := range all {
		missing += heard(t, seed, bus.EdgeFrames(e.ID), frames)
	}
	if (missing > 0) != (w.lost > 0) {
		t.Errorf("seed %d: %d frames lost, the edges know of %d", seed, w.lost, missing)
	}
}

// heard checks what one edge hears, and says how many frames it knows to be lost.
func heard(t *testing.T, seed uint64, subject string, frames []sent) (missing int) {
	last := map[string]uint64{}
	var n, casts uint64
	for _, f := range frames {
		switch f.subject {
		case bus.EveryEdgeFrames:
			missing += int(f.GetBroadcast() - casts - 1)
			casts = f.GetBroadcast()
		case subject:
			if len(f.GetDeliveries()) > 0 {
				n++
			}
			missing += int(f.GetN() - n + f.GetLastBroadcast() - casts)
			n, casts = f.GetN(), f.GetLastBroadcast()
		default:
			continue
		}
		for _, d := range f.GetDeliveries() {
			if d.GetSeq() <= last[d.GetTopic()] {
				t.Fatalf("seed %d: topic %s: %d after %d", seed, d.GetTopic(), d.GetSeq(), last[d.GetTopic()])
			}
			last[d.GetTopic()] = d.GetSeq()
		}
	}
	return missing
}

// sink counts frames, and lets tests wait for them.
type sink struct {
	mu   sync.Mutex
	more sync.Cond
	n    int
}

func (s *sink) Publish(string, []byte) error {
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
	s.more.Signal()
	return nil
}

func (s *sink) await(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.n < n {
		s.more.Wait()
	}
}

// A message for an edge makes nothing, whether it leaves alone or in a batch, for one edge or for
// all.
func TestADeliveryMakesNoGarbage(t *testing.T) {
	s := &sink{}
	s.more.L = &s.mu
	o := New(Config{RouterID: "r", Incarnation: 5, Bus: s})
	all := edges(4)
	for _, e := range all {
		o.Open(e)
	}
	d := delivery(256)
	frames := 0
	for name, put := range map[string]func(){
		"alone": func() {
			for _, e := range all {
				deliver(o, e, d)
				frames++
				s.await(frames)
			}
		},
		"all": func() {
			for range all {
				o.Broadcast(d)
				frames++
				s.await(frames)
			}
		},
	} {
		for range 100 {
			put() // buffers grow
		}
		if got := testing.AllocsPerRun(1000, put) / float64(len(all)); got > 0.01 {
			t.Errorf("%s: %v allocations for a message and edge", name, got)
		}
	}
	if err := o.Leave(t.Context()); err != nil {
		t.Error(err)
	}
}
