package schedule

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Bounds of what is held in memory; the rest waits in the database.
const (
	mostHeld  = 32_768
	mostBytes = 64 << 20
	// A page has few rows while they are large and more while they are small.
	firstPage, largestPage = 64, 1024
	smallPage              = 512 << 10 // bytes
)

// waiting is a message on the shelf.
type waiting struct {
	backend.Scheduled
	// tryAt is when to append it: when it is due, or when it is to be tried again.
	tryAt uint64
	tries int
}

// shelf holds the messages due next. Those of owned shards up to through are all here, or gone.
type shelf struct {
	completeUntil backend.ScheduledID
	queue         queue
	known         map[[16]byte]*waiting // in the queue or flying
	bytes         int
	page          int
}

func newShelf() shelf { return shelf{known: map[[16]byte]*waiting{}, page: firstPage} }

func (s *shelf) size() int { return len(s.known) }

// next is when something is to be done.
func (s *shelf) next() (at uint64, any bool) {
	if len(s.queue) == 0 {
		return 0, false
	}
	return s.queue[0].tryAt, true
}

// forget what does not fly, and what was read: it is read again.
func (s *shelf) forget() {
	for _, w := range s.queue {
		s.drop(w)
	}
	s.queue = nil
	s.completeUntil = backend.ScheduledID{}
}

func (s *shelf) drop(w *waiting) {
	delete(s.known, w.MessageID)
	s.bytes -= len(w.Body)
}

// wants reports whether to read on: there is room, and what is known does not reach to a time.
func (s *shelf) wants(to uint64) bool {
	return s.completeUntil.Due < to && len(s.known) < mostHeld/2 && s.bytes < mostBytes/2
}

// add puts a page on the shelf, read with a limit and up to a time.
func (s *shelf) add(page []backend.Scheduled, limit int, to uint64) {
	size := 0
	for i := range page {
		size += len(page[i].Body)
		s.completeUntil = page[i].ScheduledID
		s.put(&page[i])
	}
	if len(page) < limit {
		s.completeUntil = backend.ScheduledID{Due: to, MessageID: [16]byte{
			math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8,
			math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8, math.MaxUint8,
		}}
	}
	if size < smallPage {
		s.page = min(2*s.page, largestPage)
	} else {
		s.page = max(s.page/2, 1)
	}
}

// put holds a message, unless it is held, or is to be read later.
func (s *shelf) put(m *backend.Scheduled) {
	if s.known[m.MessageID] != nil || order(m.ScheduledID, s.completeUntil) > 0 {
		return
	}
	w := &waiting{Scheduled: *m, tryAt: m.Due}
	s.known[w.MessageID] = w
	s.bytes += len(w.Body)
	heap.Push(&s.queue, w)
}

// trim lets go of the later half where too much is held.
func (s *shelf) trim() {
	if len(s.known) <= mostHeld && s.bytes <= mostBytes {
		return
	}
	slices.SortFunc(s.queue, func(a, b *waiting) int { return order(a.ScheduledID, b.ScheduledID) })
	keep := len(s.queue) / 2
	if keep == 0 {
		return // it all flies
	}
	for _, w := range s.queue[keep:] {
		s.drop(w)
	}
	clear(s.queue[keep:])
	s.queue = s.queue[:keep]
	s.completeUntil = s.queue[keep-1].ScheduledID
	heap.Init(&s.queue)
}

// due takes the next message that is to be appended now.
func (s *shelf) due(now uint64) *waiting {
	if len(s.queue) == 0 || s.queue[0].tryAt > now {
		return nil
	}
	return heap.Pop(&s.queue).(*waiting)
}

// again puts back one that was taken.
func (s *shelf) again(w *waiting, at uint64) {
	w.tryAt = at
	heap.Push(&s.queue, w)
}

func order(a, b backend.ScheduledID) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), slices.Compare(a.MessageID[:], b.MessageID[:]))
}

// queue is a heap by tryAt.
type queue []*waiting

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].tryAt < q[j].tryAt }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*waiting)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	return last
}
