package edgequeue

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// Who uncorks hands over what was put, before Uncork returns: no other goroutine gets a chance
// here.
func TestWhoUncorksSends(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		synctest.Wait() // the sender sleeps
		o.Cork()
		deliver(o, edge, delivery(10))
		deliver(o, edge, delivery(10))
		o.Uncork()
		if f := n.last(); f.GetN() != 1 || len(f.GetDeliveries()) != 2 {
			t.Errorf("after Uncork: %v", f)
		}
	})
}

// Who uncorks while somebody sends does not wait, and what was put leaves behind what is being
// sent.
func TestWhoUncorksDoesNotWaitForTheSender(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		deliver(o, edge, delivery(1))
		synctest.Wait() // the sender is held up with it
		o.Cork()
		deliver(o, edge, delivery(10))
		o.Uncork()
		if n.count() != 0 {
			t.Errorf("%d frames past the one that is held up", n.count())
		}
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		synctest.Wait()
		if f := n.last(); f.GetN() != 2 || n.count() != 2 {
			t.Errorf("%d frames, the last %v", n.count(), f)
		}
	})
}

// One who is held up while he sends leaves the rest to the sender: nobody's message waits for a
// wake that does not come.
func TestNothingIsLeftBehindByWhoSent(t *testing.T) {
	in(t, 0, func(n *nats, o *Queues) {
		synctest.Wait()
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		ended := make(chan struct{})
		go func() {
			o.Cork()
			deliver(o, edge, delivery(1))
			o.Uncork()
			close(ended)
		}()
		synctest.Wait()
		for range 3 * inlineBatches { // each a batch of its own
			o.Cork()
			deliver(o, edge, delivery(maxBatch))
			o.Uncork()
		}
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		<-ended
		synctest.Wait()
		if n.count() != 1+3*inlineBatches || n.last().GetN() != uint64(n.count()) {
			t.Errorf("%d frames, the last has number %d", n.count(), n.last().GetN())
		}
	})
}

// Frames leave in the order of their numbers, whoever sends them.
func TestOrderHoldsWhoeverSends(t *testing.T) {
	n := &nats{}
	o := New(Config{RouterID: "r", Incarnation: 5, Bus: n, Registry: prometheus.NewRegistry()})
	o.Open(edge)
	const putters, each = 4, 500
	var all sync.WaitGroup
	for i := range putters {
		all.Go(func() {
			for range each {
				if i%2 == 0 { // half of them leave it to the sender
					deliver(o, edge, delivery(10))
					continue
				}
				o.Cork()
				deliver(o, edge, delivery(10))
				o.Uncork()
			}
		})
	}
	all.Wait()
	if err := o.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := 0
	for i, f := range n.frames {
		got += len(f.GetDeliveries())
		if want := uint64(i + 1); f.GetN() != want && !f.GetLeaving() {
			t.Fatalf("frame %d has number %d", want, f.GetN())
		}
	}
	if got != putters*each {
		t.Errorf("%d of %d left", got, putters*each)
	}
}
