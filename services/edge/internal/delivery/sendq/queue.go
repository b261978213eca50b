// Package sendq is the send queues of an event loop's connections: what waits to be written to each
// of them, in which order, and how much memory that is. It decides nothing about subscriptions:
// what becomes of a message that is dropped is told by its caller, who walks over the items.
package sendq

import (
	"fmt"
	"unsafe"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

// Queue is the send queue of one connection, and one word long: its state is borrowed from Shared
// with the first item and given back with the last. Methods that change it must not be called
// where it is empty, but those that say so.
type Queue struct{ s *state }

// Empty is a queue without anything in it.
var Empty = Queue{slab.None[state]()}

// state of a queue that is not empty, or of one whose socket is stalled, or that has something
// beside it.
type state struct {
	items     []Item // a ring; a power of two. It is borrowed where it is not own
	head      uint32
	n         uint32 // items, dead ones included
	dead      uint32
	messages  uint32
	bytes     int
	sent      uint32 // bytes of the first item that have left
	answers   uint32 // bytes of answers, and shortAnswer for each
	expires   uint64 // no message has expired before, Unix microseconds; 0: none will
	owner     uint32
	kernel    uint32 // bytes that the kernel holds while stalled
	beside    uint32 // bytes that have left the queue, and wait for the socket in another form
	reordered bool   // items are not in the order in which they came
	stalled   bool   // the kernel takes nothing now
	late      bool   // it took nothing for long
	class     uint8  // of its size; 0: not listed
	level     uint8  // of levels: the highest that it has reached
	stalledAt int64  // since when its client has taken nothing, while stalled
	taken     uint64 // bytes that its client had taken by then
	held      int    // bytes that count for the budget
	shared    *Shared
	// Of the list of those that are about as large.
	prev, next *state
	own        [2]Item
}

const (
	stateSize = int(unsafe.Sizeof(state{}))
	// shortAnswer is added to what an answer that is not read counts for: short ones are mostly
	// what keeps them.
	shortAnswer = 32
	// deepQueue is how many messages make a connection's turn to be flushed come at once: others
	// may be many, and the queue is bounded.
	deepQueue = 128
)

// IsEmpty reports whether nothing is queued, nor beside the queue, and the socket is not stalled.
func (q *Queue) IsEmpty() bool { return q.s == Empty.s }

// Len is how many items there are, dead ones included.
func (q *Queue) Len() uint32 { return q.s.n }

// At is the i-th item, good until an item is added or taken off.
func (q *Queue) At(i uint32) *Item { return q.s.at(i) }

// Begun reports whether some bytes of the i-th item have left: it can't be dropped any more.
func (q *Queue) Begun(i uint32) bool { return q.s.begun(i) }

// Messages is how many are queued.
func (q *Queue) Messages() int { return int(q.s.messages) }

// Bytes is how many are queued.
func (q *Queue) Bytes() int { return q.s.bytes }

// Answers is how much the answers of the edge count for, in bytes.
func (q *Queue) Answers() int { return int(q.s.answers) }

// Held is how many bytes count for the budget.
func (q *Queue) Held() int { return q.s.held }

func (s *state) at(i uint32) *Item { return &s.items[(s.head+i)&uint32(len(s.items)-1)] }

func (s *state) begun(i uint32) bool { return i == 0 && (s.sent > 0 || s.at(0).kind == Rest) }

// Push adds an item. The queue may be empty; owner is its number then.
func (q *Queue) Push(shared *Shared, owner uint32, it *Item) {
	s := q.s
	if s == Empty.s {
		s = shared.take(owner)
		q.s = s
	}
	if at := s.place(it); !s.extend(at, it) {
		if int(s.n) == len(s.items) {
			s.grow()
		}
		s.n++
		for i := s.n - 1; i > at; i-- {
			*s.at(i) = *s.at(i - 1)
		}
		*s.at(at) = *it
	}
	s.account(it, 1)
	if s.messages >= deepQueue && s.messages-it.count < deepQueue {
		shared.deep = append(shared.deep, s.owner)
	}
}

// grow makes room for as many items again.
func (s *state) grow() { s.move(2 * len(s.items)) }

// move puts the items into a ring of another size.
func (s *state) move(size int) {
	moved := s.shared.rings.take(size)
	for i := range s.n {
		moved[i] = *s.at(i)
		*s.at(i) = Item{}
	}
	s.giveRing()
	s.items, s.head = moved, 0
	s.charge(size * itemSize)
}

// account counts an item that is added (sign 1) or taken off (-1).
func (s *state) account(it *Item, sign int) {
	cost := len(it.bytes) * sign
	s.bytes += cost
	s.shared.bytes += int64(cost)
	s.charge(cost)
	switch it.kind {
	case Answer:
		s.answers += uint32(cost + shortAnswer*sign)
	case Message, Rest:
		n := it.count * uint32(sign)
		s.messages += n
		if it.stream != nil {
			it.stream.queued += n
		}
	}
}

// charge counts n bytes more for the budget; below 0: less.
func (s *state) charge(n int) {
	s.held += n
	s.shared.budget.Charge(n)
	if s.class != 0 || s.held >= leastListed {
		s.shared.sizes.list(s)
	}
}

// clear empties the place of an item that was taken off in the middle.
func (s *state) clear(it *Item) {
	*it = Item{}
	s.dead++
}

// Dead is how many of the items are dead.
func (q *Queue) Dead() uint32 { return q.s.dead }

// Compact closes the gaps that dead items left. The queue may be empty.
func (q *Queue) Compact() {
	s := q.s
	if s.dead == 0 {
		return
	}
	kept := uint32(0)
	for i := range s.n {
		if it := *s.at(i); it.kind != Dead {
			*s.at(kept) = it
			kept++
		}
	}
	for i := kept; i < s.n; i++ {
		*s.at(i) = Item{}
	}
	s.n, s.dead = kept, 0
	if kept == 0 {
		q.emptied()
	}
}

// Tidy closes the gaps that dead items left once there are many. The queue may be empty.
func (q *Queue) Tidy() {
	s := q.s
	if s.dead > 64 && s.dead > s.n/2 {
		q.Compact()
	}
}

// pop takes the first item off, which was accounted for.
func (q *Queue) pop() {
	s := q.s
	*s.at(0) = Item{}
	s.head = (s.head + 1) & uint32(len(s.items)-1)
	s.n--
	s.sent = 0
	if s.n == 0 {
		q.emptied()
	}
}

// emptied gives the state back in which nothing is left, unless it says that the socket is stalled,
// or what is beside the queue.
func (q *Queue) emptied() {
	s := q.s
	if !s.stalled && s.beside == 0 {
		q.give()
		return
	}
	s.giveRing()
	s.items, s.head, s.dead, s.sent, s.expires, s.reordered = s.own[:], 0, 0, 0, 0, false
}

// counts is what a queue must have none of when its state is given back.
type counts struct {
	items, messages, answers uint32
	bytes, held              int
	class                    uint8
}

// give returns the state of a queue that is empty.
func (q *Queue) give() {
	s := q.s
	s.giveRing()
	s.charge(-stateSize)
	if left := (counts{s.n, s.messages, s.answers, s.bytes, s.held, s.class}); slab.Scribbles && left != (counts{}) {
		panic(fmt.Sprintf("sendq: a queue is given back that counts %+v", left))
	}
	// its items were cleared, and what they counted for was taken off
	shared := s.shared
	s.items, s.owner, s.shared, s.head, s.dead, s.sent, s.expires, s.reordered, s.level = nil, 0, nil, 0, 0, 0, 0, false, 0
	shared.states.GiveCleared(s)
	*q = Empty
}

// giveRing gives the ring back where it is not the state's own.
func (s *state) giveRing() {
	if len(s.items) != len(s.own) {
		s.charge(-len(s.items) * itemSize)
		s.shared.rings.give(s.items)
	}
}

// Shrink gives a ring back that is far too large. The queue may be empty.
func (q *Queue) Shrink() {
	s := q.s
	size := max(2*len(s.own), len(s.items)/4)
	if q.IsEmpty() || len(s.items) <= size || int(s.n) > size/2 {
		return
	}
	for size/4 > int(s.n) && size > 2*len(s.own) {
		size /= 2
	}
	s.move(size)
}
