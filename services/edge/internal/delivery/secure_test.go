package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// TestSealedCountsAsQueued has a connection's ciphertext take room that its queue would have.
func TestSealedCountsAsQueued(t *testing.T) {
	h, slots := crowd(t, 1, &wirev1.Subscribe{})
	s, slot := newStream(t, 10), slots[0]
	c := h.conns.Get(slot)
	h.Outside(slot, h.lim.QueueBytes)
	if q := h.Stats().QueuedBytes; q != int64(h.lim.QueueBytes) {
		t.Fatalf("%d bytes queued", q)
	}
	s.post(h) // an empty queue takes any
	s.post(h) // and this one waits in the log
	if c.Waiting != 1 {
		t.Fatalf("%d messages are queued, and %d tracks wait", c.Out.Messages(), c.Waiting)
	}
	if h.drained(c) {
		t.Fatal("the queue is taken for short")
	}
	h.Outside(slot, 0)
	if !h.drained(c) || h.waker.Len() != 1 {
		t.Fatal("nobody goes on once the socket has taken the ciphertext")
	}
	if q := h.Stats().QueuedBytes; q != int64(c.Out.Bytes()) {
		t.Fatalf("%d bytes queued, want the %d of the queue", q, c.Out.Bytes())
	}
}

// What has left a queue in another form, and that nobody takes, can be had back where others need
// it: its connection is in the way as one is whose messages lie in its queue.
func TestWhatIsBesideAQueueGivesWay(t *testing.T) {
	h, slots := crowd(t, 2, &wirev1.Subscribe{})
	const beside = 100 << 10
	before, queues := h.Stats().BudgetBytes, h.queues.InUse()
	h.Outside(slots[1], beside)
	if slot, held, ok := h.queues.Largest(); !ok || slot != slots[1] || held < beside {
		t.Fatalf("the largest is %d of %d bytes, %v", slot, held, ok)
	}
	h.trim(h.conns.Get(slots[1]))
	s := h.Stats()
	if s.Closes[wirev1.Code_CODE_MEMORY_BUDGET] != 1 || s.BudgetBytes != before || h.queues.InUse() != queues {
		t.Fatalf("%d bytes in %d queues, %v", s.BudgetBytes, h.queues.InUse(), s.Closes)
	}
	if h.Outside(slots[1], 0); h.Stats().BudgetBytes != before {
		t.Fatal("it is taken off twice")
	}
}

// While a loop stops, who is slow has its time for what was sent to it, also where nothing of it is
// in the queue any more.
func TestWhatIsBesideAQueueHasTheTimeOfADrain(t *testing.T) {
	w := newWorld(t, Limits{})
	c := w.connect(&wirev1.Hello{ClientId: "slow"})
	w.h.Outside(c.slot, 1000)
	w.h.Event(exchange.Drain{DeadlineMS: 60_000})
	live(w, []*client{c}, time.Second)
	if s := w.h.Stats(); s.Closes[wirev1.Code_CODE_DRAINING] != 0 {
		t.Fatalf("closed in the midst of a message: %v", s.Closes)
	}
	w.h.Outside(c.slot, 0)
	live(w, []*client{c}, 300*time.Millisecond)
	if s := w.h.Stats(); s.Closes[wirev1.Code_CODE_DRAINING] != 1 {
		t.Fatalf("not closed: %v", s.Closes)
	}
}
