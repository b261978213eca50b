package delivery

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
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
