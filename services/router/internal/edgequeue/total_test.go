package edgequeue

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

func TestBytesThatWaitArePressure(t *testing.T) {
	in(t, 10_000, func(n *nats, o *Queues) {
		want := func(pressure float64, zero, nine bool) {
			t.Helper()
			p, ok := o.Admits(0)
			_, high := o.Admits(9)
			if p < pressure-0.1 || p > pressure+0.1 || ok != zero || high != nine {
				t.Errorf("pressure %v, priority 0 admitted %v, 9 %v; want %v, %v, %v", p, ok, high, pressure, zero, nine)
			}
		}
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		deliver(o, edge, delivery(10))
		synctest.Wait() // that one is on its way, and what comes now waits
		want(0, true, true)
		deliver(o, edge, delivery(6000))
		want(0.6, false, true)
		deliver(o, edge, delivery(3800))
		want(0.98, false, false)

		other := interest.Edge{ID: "f", Incarnation: 1}
		o.Open(other) // with room of its own
		want(0.5, false, true)
		o.Close(other)
		deliver(o, other, delivery(10))
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		synctest.Wait()
		want(0, true, true)
		if w := o.total.waiting.Load(); w != 0 {
			t.Errorf("%d bytes wait when everything was sent", w)
		}
	})
}

func TestTheTotalIsBoundedToo(t *testing.T) {
	in(t, 10_000, func(n *nats, o *Queues) {
		o.total.maxBytes = 15_000
		other := interest.Edge{ID: "f", Incarnation: 1}
		o.Open(other)
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		deliver(o, edge, delivery(10))
		deliver(o, other, delivery(10))
		synctest.Wait()
		if !deliver(o, edge, delivery(9000)) || deliver(o, other, delivery(9000)) {
			t.Error("more waits for both together than may")
		}
		o.Close(other) // what waited for it is forgotten
		if !deliver(o, edge, delivery(900)) {
			t.Error("there is room again")
		}
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		synctest.Wait()
		if w := o.total.waiting.Load(); w != 0 {
			t.Errorf("%d bytes wait when everything was sent", w)
		}
	})
}

// What waits to be broadcast is pressure by itself, however many edges there are, and beyond its
// bound becomes a gap that is counted.
func TestBroadcastsThatWaitArePressure(t *testing.T) {
	in(t, 10_000, func(n *nats, o *Queues) {
		for _, e := range edges(7) {
			o.Open(e)
		}
		hold := make(chan struct{})
		n.set(func(n *nats) { n.hold = hold })
		o.Broadcast(delivery(10))
		synctest.Wait() // that one is on its way, and what comes now waits
		o.Broadcast(delivery(6000))
		if p, ok := o.Admits(0); p < 0.6 || p > 0.7 || ok {
			t.Errorf("6,000 of 10,000 bytes: pressure %v, priority 0 admitted %v", p, ok)
		}
		o.Broadcast(delivery(3800))
		if p, ok := o.Admits(9); p < 0.95 || ok {
			t.Errorf("9,800 of 10,000 bytes: pressure %v, priority 9 admitted %v", p, ok)
		}
		if o.Broadcast(delivery(1000)) {
			t.Error("more waits than may")
		}
		if !deliver(o, edge, delivery(1000)) {
			t.Error("an edge's own queue has no room because the broadcasts' has none")
		}
		n.set(func(n *nats) { n.hold = nil })
		close(hold)
		synctest.Wait()
		if p, ok := o.Admits(0); p != 0 || !ok || o.total.broadcasts.Load() != 0 || o.total.waiting.Load() != 0 {
			t.Errorf("pressure %v with nothing that waits", p)
		}
		if got := testutil.ToFloat64(o.metrics.batchesLost.WithLabelValues("QUEUE_FULL")); got != 1 {
			t.Errorf("%v lost batches counted", got)
		}
		if got := n.last(); got.GetN() != 1 || got.GetLastBroadcast() != 3 {
			// the two that waited were sent as one; the gap has a number, too
			t.Errorf("the edge is told of broadcast %d with batch %d", got.GetLastBroadcast(), got.GetN())
		}
	})
}
