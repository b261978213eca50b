package edgequeue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// nats records frames; it can refuse, and it can hold a sender up.
type nats struct {
	mu     sync.Mutex
	frames []*meshv1.RouterFrame
	at     []time.Time
	sizes  []int
	refuse bool
	hold   chan struct{}
}

func (n *nats) Publish(_ string, data []byte) error {
	n.mu.Lock()
	hold := n.hold
	n.mu.Unlock()
	if hold != nil {
		<-hold
	}
	f := &meshv1.RouterFrame{}
	if err := proto.Unmarshal(data, f); err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse {
		return errors.New("no server")
	}
	n.frames, n.at, n.sizes = append(n.frames, f), append(n.at, time.Now()), append(n.sizes, len(data))
	return nil
}

func (n *nats) set(f func(*nats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

func (n *nats) last() *meshv1.RouterFrame {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.frames) == 0 {
		return nil
	}
	return n.frames[len(n.frames)-1]
}

func (n *nats) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.frames)
}

var edge = interest.Edge{ID: "e", Incarnation: 7}

// in runs a story in a bubble with a clock of its own.
func in(t *testing.T, queueBytes int, story func(n *nats, o *Queues)) {
	synctest.Test(t, func(t *testing.T) {
		n := &nats{}
		o := New(Config{RouterID: "r", Incarnation: 5, Bus: n, QueueBytes: queueBytes, Registry: prometheus.NewRegistry()})
		o.Open(edge)
		story(n, o)
		if err := o.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// deliver queues for an edge if it is open.
func deliver(o *Queues, e interest.Edge, encoded []byte) bool {
	o.mu.RLock()
	q := o.queues[e]
	o.mu.RUnlock()
	return q.Deliver(encoded)
}

func delivery(size int) []byte {
	return AppendDelivery(nil, &Delivery{Topic: "t", Epoch: 1, Seq: 2, ExpiresAt: 3, Body: make([]byte, size)})
}

func TestDeliveryIsEncodedAsTheProtoSays(t *testing.T) {
	for _, d := range []Delivery{
		{Topic: "room/1", Epoch: 1 << 60, Seq: 1 << 50, ExpiresAt: 77, Body: []byte("body")},
		{Topic: "live", Body: []byte{}},
	} {
		data := AppendDelivery(AppendDelivery(nil, &d), &d)
		data = (&trailer{router: "r", incarnation: 5, edge: edge, n: 300, applied: 9, wantSnapshot: true, leaving: true}).append(appendCheck(data, "x/y"))
		got := &meshv1.RouterFrame{}
		if err := proto.Unmarshal(data, got); err != nil {
			t.Fatal(err)
		}
		one := &meshv1.Delivery{Topic: d.Topic, Epoch: d.Epoch, Seq: d.Seq, ExpiresAt: d.ExpiresAt, Body: d.Body}
		want := &meshv1.RouterFrame{
			RouterId: "r", RouterIncarnation: 5, EdgeIncarnation: 7, N: 300, AppliedVersion: 9, Deliveries: []*meshv1.Delivery{one, one},
			CheckTopics: []string{"x/y"}, WantSnapshot: true, Leaving: true,
		}
		if !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestBatchesAreNumberedAndIdleOnesGoStraightThrough(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		for want := uint64(1); want <= 3; want++ {
			deliver(o, edge, delivery(10))
			synctest.Wait()
			if f := n.last(); f.GetN() != want || len(f.GetDeliveries()) != 1 || f.GetRouterIncarnation() != 5 || f.GetEdgeIncarnation() != 7 {
				t.Fatalf("frame %v", f)
			}
		}
		o.Open(edge).Check("x")
		synctest.Wait()
		if f := n.last(); f.GetN() != 4 || f.GetCheckTopics()[0] != "x" {
			t.Fatalf("check %v", f)
		}
	})
}

func TestWhatWaitsGathersUpToTheBatchSize(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		deliver(o, edge, delivery(1))
		synctest.Wait() // the sender is held up with the first one
		for range 20 {
			deliver(o, edge, delivery(100<<10))
		}
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		synctest.Wait()
		if c := n.count(); c != 1+4 {
			t.Errorf("%d frames for 1 B and 20 times 100 KiB", c)
		}
		for i, f := range n.frames {
			if f.GetN() != uint64(i+1) || n.sizes[i] > maxBatch+200 {
				t.Errorf("frame %d has number %d and %d bytes", i, f.GetN(), n.sizes[i])
			}
		}
	})
}

func TestWhoHasMoreAtHandGathers(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		for _, c := range []struct{ put, frames int }{{1, 1}, {10, 1}, {maxCorked + 10, 2}} {
			before := n.count()
			o.Cork()
			for range c.put {
				deliver(o, edge, delivery(10))
				synctest.Wait() // the sender has all the time it could want
			}
			o.Uncork()
			synctest.Wait()
			if got := n.count() - before; got != c.frames {
				t.Errorf("%d messages left in %d frames", c.put, got)
			}
		}
		o.Cork()
		o.Open(edge).Answer(5, true) // what does not wait takes along what is there
		deliver(o, edge, delivery(10))
		synctest.Wait()
		o.Cork()
		o.Uncork() // another's end
		synctest.Wait()
		if f := n.last(); len(f.GetDeliveries()) != 1 {
			t.Errorf("left behind: %v", f)
		}
		o.Uncork()
	})
}

func TestARefusedBatchLeavesAHoleThatTheBeatNames(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		n.set(func(n *nats) { n.refuse = true })
		deliver(o, edge, delivery(1))
		synctest.Wait()
		n.set(func(n *nats) { n.refuse = false })
		<-time.After(400 * time.Millisecond) // of the bubble's clock
		o.Beat(time.Now())
		synctest.Wait()
		if f := n.last(); f.GetN() != 1 || len(f.GetDeliveries()) != 0 {
			t.Fatalf("beat %v", f)
		}
		deliver(o, edge, delivery(1))
		synctest.Wait()
		if f := n.last(); f.GetN() != 2 {
			t.Fatalf("next batch %v", f)
		}
	})
}

func TestAFullQueueLeavesAHole(t *testing.T) {
	in(t, 1000, func(n *nats, o *Queues) {
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		deliver(o, edge, delivery(1))
		synctest.Wait()
		taken := 0
		for range 10 {
			if deliver(o, edge, delivery(300)) {
				taken++
			}
		}
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		synctest.Wait()
		if taken != 3 {
			t.Errorf("%d taken into 1,000 B", taken)
		}
		deliver(o, edge, delivery(1)) // 1 was the first, 2 what waited, 3 is the gap
		synctest.Wait()
		if f := n.last(); f.GetN() != 4 {
			t.Errorf("next batch %v", f)
		}
		if got := testutil.ToFloat64(o.metrics.batchesLost.WithLabelValues("QUEUE_FULL")); got != 1 {
			t.Errorf("%v lost batches counted", got)
		}
	})
}

func TestAnswersGatherForFiveMilliseconds(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		began := time.Now()
		for version := range uint64(100) {
			o.Open(edge).Answer(version+1, false)
			synctest.Wait()
		}
		if c := n.count(); c != 1 {
			t.Fatalf("%d frames at once", c)
		}
		<-time.After(answerEvery)
		synctest.Wait()
		f := n.last()
		if c := n.count(); c != 2 || f.GetAppliedVersion() != 100 || f.GetN() != 0 {
			t.Fatalf("%d frames, last %v", c, f)
		}
		if late := n.at[1].Sub(began); late > answerEvery {
			t.Errorf("answered after %v", late)
		}
		o.Open(edge).Answer(100, true) // a wish does not wait
		synctest.Wait()
		if f := n.last(); !f.GetWantSnapshot() {
			t.Errorf("last %v", f)
		}
		<-time.After(time.Second)
		o.Beat(time.Now())
		synctest.Wait()
		if f := n.last(); f.GetWantSnapshot() {
			t.Error("wished twice")
		}
	})
}

func TestEveryEdgeHearsAtLeastEveryHalfSecond(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		for range 100 {
			<-time.After(100 * time.Millisecond)
			o.Beat(time.Now())
			synctest.Wait()
		}
		for i := 1; i < len(n.at); i++ {
			if gap := n.at[i].Sub(n.at[i-1]); gap > 500*time.Millisecond {
				t.Fatalf("%v without a frame", gap)
			}
		}
		if len(n.at) < 20 || len(n.at) > 35 {
			t.Errorf("%d beats in 10 s", len(n.at))
		}
	})
}

func TestLeavingComesLast(t *testing.T) {
	n := &nats{}
	o := New(Config{RouterID: "r", Incarnation: 5, Bus: n})
	for i := range 3 {
		o.Open(interest.Edge{ID: fmt.Sprint(i), Incarnation: 7})
	}
	for range 100 {
		deliver(o, interest.Edge{ID: "1", Incarnation: 7}, delivery(10<<10))
	}
	if err := o.Leave(context.Background()); err != nil {
		t.Fatal(err)
	}
	leaving, deliveries := 0, 0
	for _, f := range n.frames {
		deliveries += len(f.GetDeliveries())
		if f.GetLeaving() {
			leaving++
		}
	}
	if leaving != 3 || deliveries != 100 {
		t.Errorf("%d farewells, %d deliveries", leaving, deliveries)
	}
	o.Open(edge) // too late: does nothing
	if deliver(o, edge, nil) {
		t.Error("delivered after leaving")
	}
}

func TestAnEdgeThatIsGoneGetsNothing(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		o.Close(edge)
		if deliver(o, edge, delivery(1)) || n.count() != 0 {
			t.Error("delivered to an edge that is gone")
		}
		again := interest.Edge{ID: "e", Incarnation: 8}
		o.Open(again)
		deliver(o, again, delivery(1))
		synctest.Wait()
		if f := n.last(); f.GetN() != 1 || f.GetEdgeIncarnation() != 8 {
			t.Errorf("first batch of the next life: %v", f)
		}
	})
}

// An edge that was silent for a while may still be the same: a number twice would look to it like a
// batch it had.
func TestAnEdgeThatComesBackHasItsNumbersGoOn(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		for range 3 {
			deliver(o, edge, delivery(1))
			synctest.Wait()
		}
		o.Close(edge)
		o.Open(edge)
		deliver(o, edge, delivery(1))
		synctest.Wait()
		if f := n.last(); f.GetN() != 5 {
			t.Errorf("after 3, and one left out: %v", f)
		}
	})
}

func BenchmarkDeliver(b *testing.B) {
	o := New(Config{RouterID: "r", Incarnation: 5, Bus: discard{}})
	o.Open(edge)
	d := delivery(256)
	b.ReportAllocs()
	for b.Loop() {
		deliver(o, edge, d)
	}
}

type discard struct{}

func (discard) Publish(string, []byte) error { return nil }

// Every frame to one edge says which kinds of events are wanted, and a change is said soon.
func TestWantedEventsAreSaid(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		o.Open(edge).Answer(1, false)
		<-time.After(time.Second)
		if got := n.last(); got.GetEvents() != 0 {
			t.Errorf("before anything is known: %v", got)
		}
		for _, kinds := range []events.Mask{events.MaskSet, events.MaskSet | events.Of(events.Connect), events.MaskSet} {
			before := n.count()
			o.SetWantedEvents(kinds)
			<-time.After(2 * answerEvery)
			if got := n.last(); n.count() != before+1 || got.GetEvents() != uint32(kinds) {
				t.Errorf("%b: %d frames, the last one %v", kinds, n.count()-before, got)
			}
			o.SetWantedEvents(kinds) // nothing new
			<-time.After(2 * answerEvery)
			if n.count() != before+1 {
				t.Errorf("%b: %d frames", kinds, n.count()-before)
			}
		}
		deliver(o, edge, delivery(1))
		<-time.After(2 * answerEvery)
		if got := n.last(); len(got.GetDeliveries()) != 1 || got.GetEvents() != uint32(events.MaskSet) {
			t.Errorf("a batch: %v", got)
		}
	})
}
