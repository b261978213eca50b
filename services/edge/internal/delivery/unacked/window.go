// Package unacked is the window of one position: the messages that were queued for a client and
// that it has not ACKed, and when each of them is due.
package unacked

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Window holds messages from when they are queued until they are ACKed, in seq order.
type Window struct {
	entries []Entry
	head    int      // what is before it was removed
	parked  []uint64 // were removed un-ACKed by timeout, and wait for the session's next connection
	bytes   int      // of all messages, as Kept has them
	// released stands for each message whose bytes are not kept any more; nil: there was none.
	released *exchange.Message
	// Fetching says that such messages are being read from the log again, and Failing that the last
	// such read failed.
	Fetching, Failing bool
}

// entryBytes is what an entry takes, twice where the window grows.
const entryBytes = 64

// Kept is how much memory the window keeps for a message, in bytes.
func Kept(m *exchange.Message) int { return entryBytes + m.Kept() }

// Entry is one message. One without a Message is the place of a message that was removed.
type Entry struct {
	Message *exchange.Message
	Seq     uint64
	Due     int64 // 0: not with the client, or on its way again
	Attempt uint16
	Sends   uint8 // on this connection
	Queued  bool
	Nacked  bool
	Wanted  bool // it is due, and was released: it is sent again once it was read
	failed  uint8
}

// Sent notes that the bytes of the message have left for the kernel, and that it is due then.
func (e *Entry) Sent(due int64) {
	e.Queued, e.Nacked, e.Due = false, false, due
	e.Sends = min(e.Sends+1, 254)
}

// Again notes that the message is queued once more, for its next attempt.
func (e *Entry) Again() { e.Attempt, e.Due, e.Queued = e.Attempt+1, 0, true }

// TakeBack notes that a message that was queued once more is not, to be tried again when it is due.
func (e *Entry) TakeBack() { e.Queued, e.Attempt = false, e.Attempt-min(e.Attempt, 1) }

// Bytes is how much memory the window keeps.
func (w *Window) Bytes() int { return w.bytes }

// Release lets go of the bytes of an entry's message, which keeps its place, and says how many they
// were.
func (w *Window) Release(e *Entry) (bytes int) {
	bytes = Kept(e.Message) - entryBytes
	if w.released == nil {
		w.released = &exchange.Message{}
	}
	w.released.Epoch = e.Message.Epoch // that of all: with a new epoch a window is cleared
	e.Message = w.released
	w.bytes -= bytes
	return bytes
}

// IsReleased reports whether the bytes of an entry's message are not kept.
func (w *Window) IsReleased(e *Entry) bool { return e.Message != nil && e.Message == w.released }

// Want notes that a released entry is due and is to be read, and says how often in a row that
// failed.
func (w *Window) Want(e *Entry) (failed uint8) {
	if !e.Wanted || !w.Failing {
		e.failed = 0
	} else if e.failed < 255 {
		e.failed++
	}
	e.Wanted = true
	return e.failed
}

// Refill gives a released entry its message again, and says how many bytes that is.
func (w *Window) Refill(e *Entry, m *exchange.Message) (bytes int) {
	e.Message, e.Wanted = m, false
	bytes = Kept(m) - entryBytes
	w.bytes += bytes
	return bytes
}

// Live are the entries in use: the first and the last of them have messages.
func (w *Window) Live() []Entry { return w.entries[w.head:] }

// First and End are the places of the entries in use, which stay until one is added. At is the
// entry at a place.
func (w *Window) First() int { return w.head }

// End is the place behind the last entry.
func (w *Window) End() int { return len(w.entries) }

// At is the entry at a place.
func (w *Window) At(i int) *Entry { return &w.entries[i] }

// IsEmpty reports whether no message is in the window, and none is parked.
func (w *Window) IsEmpty() bool { return w.head == len(w.entries) && len(w.parked) == 0 }

// From is the place of the first entry at a seq or behind it.
func (w *Window) From(seq uint64) int {
	i, _ := w.search(seq)
	return w.head + i
}

// search finds a seq among the entries in use.
func (w *Window) search(seq uint64) (i int, found bool) {
	return slices.BinarySearchFunc(w.Live(), seq, func(e Entry, seq uint64) int {
		switch {
		case e.Seq < seq:
			return -1
		case e.Seq > seq:
			return 1
		}
		return 0
	})
}

// Find is the entry of a message; nil where there is none.
func (w *Window) Find(seq uint64) *Entry {
	i, ok := w.search(seq)
	if e := w.head + i; ok && w.entries[e].Message != nil {
		return &w.entries[e]
	}
	return nil
}

// LastSent is the highest seq that has left for the client; 0 where none has.
func (w *Window) LastSent() uint64 {
	for i := len(w.entries) - 1; i >= w.head; i-- {
		if e := &w.entries[i]; e.Message != nil && e.Sends > 0 {
			return e.Seq
		}
	}
	return 0
}

// Add puts a message in that was just queued.
func (w *Window) Add(m *exchange.Message, attempt uint16) {
	if w.head > 0 && len(w.entries) == cap(w.entries) {
		n := copy(w.entries, w.entries[w.head:])
		clear(w.entries[n:])
		w.entries, w.head = w.entries[:n], 0
	}
	w.bytes += Kept(m)
	at := len(w.entries)
	for at > w.head && w.entries[at-1].Seq > m.Seq { // ranked ones come in any order
		at--
	}
	e := Entry{Message: m, Seq: m.Seq, Attempt: attempt, Queued: true}
	if at > w.head && w.entries[at-1].Seq == m.Seq { // it was taken back, and its place is there
		w.entries[at-1] = e
		return
	}
	w.entries = slices.Insert(w.entries, at, e)
}

// Remove takes a message out.
func (w *Window) Remove(e *Entry) {
	w.bytes -= Kept(e.Message)
	e.Message = nil
	for w.head < len(w.entries) && w.entries[w.head].Message == nil {
		w.head++
	}
	for len(w.entries) > w.head && w.entries[len(w.entries)-1].Message == nil {
		w.entries = w.entries[:len(w.entries)-1]
	}
	if w.head == len(w.entries) {
		w.entries, w.head = w.entries[:0], 0
	}
}

// Clear takes everything out.
func (w *Window) Clear() {
	clear(w.entries)
	w.entries, w.head, w.parked = w.entries[:0], 0, nil
	w.bytes, w.Fetching, w.Failing = 0, false, false
}

// Park notes that a message is removed un-ACKed: an ACK may still come.
func (w *Window) Park(seq uint64) { w.parked = append(w.parked, seq) }

// Parked is how many messages are parked.
func (w *Window) Parked() int { return len(w.parked) }

// Unpark forgets a message that was parked, or with through all up to it. It calls acked, which may
// be nil, for each, and returns how many they were.
func (w *Window) Unpark(through bool, seq uint64, acked func(seq uint64)) (n int) {
	kept := w.parked[:0]
	for _, p := range w.parked {
		if p != seq && (!through || p > seq) {
			kept = append(kept, p)
			continue
		}
		if n++; acked != nil {
			acked(p)
		}
	}
	w.parked = kept
	return n
}

// AddAttempts writes into the stored form of a session's cursor how often the messages in the
// window have been attempted, those with the client included.
func (w *Window) AddAttempts(out *meshv1.SessionCursor) {
	for i := range w.Live() {
		e := &w.Live()[i]
		n := uint32(e.Attempt)
		if e.Sends > 0 && !e.Queued {
			n++
		}
		if e.Message == nil || n == 0 || e.Message.Epoch != out.GetEpoch() {
			continue
		}
		if out.Attempts == nil {
			out.Attempts = map[uint64]uint32{}
		}
		out.Attempts[e.Seq] = n
	}
}

// KeepAttempts notes in a session's cursor how often the messages were attempted that are in the
// window when it ends.
func (w *Window) KeepAttempts(cur *cursor.Cursor) {
	for i := range w.Live() {
		e := &w.Live()[i]
		if e.Message == nil || e.Message.Epoch != cur.Epoch {
			continue
		}
		n := uint32(e.Attempt)
		if !e.Queued {
			n++
		}
		cur.Attempted(e.Seq, n)
	}
}
