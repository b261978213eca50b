package assignment

import (
	"container/heap"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// task is a durable message that is queued and not settled.
type task struct {
	m        *exchange.Message
	at       *place
	lane     *lane
	order    uint64
	attempts uint32  // deliveries that are over and count
	again    bool    // a member may have had it before
	member   *member // that has it; nil: none
	turn     uint64  // when it was given to it
	given    int64   // the same, as time
	last     *member // that had it, and let it time out or had no room for it
	due      int64   // of a delayed one
	in       *taskHeap
	index    int // in in
	// in the list of the member that has it
	before, behind *task
}

// taskList is what a member has, in the order in which it was given.
type taskList struct {
	first, last *task
	n           int
}

func (l *taskList) push(t *task) {
	if t.before = l.last; l.last != nil {
		l.last.behind = t
	} else {
		l.first = t
	}
	l.last = t
	l.n++
}

func (l *taskList) remove(t *task) {
	if t.before != nil {
		t.before.behind = t.behind
	} else {
		l.first = t.behind
	}
	if t.behind != nil {
		t.behind.before = t.before
	} else {
		l.last = t.before
	}
	t.before, t.behind = nil, nil
	l.n--
}

// attempt is what its member is told: above 0 if any may have had it before.
func (t *task) attempt() uint32 {
	if t.again {
		return max(t.attempts, 1)
	}
	return t.attempts
}

// tried counts a delivery that is over. One of which no member gave word, because its edge or its
// dispatcher went or it got lost on the way, counts no further than to the last attempt but one:
// what may never have been seen is tried once more, and is no dead letter.
func (c *Core) tried(t *task, unseen bool) {
	t.again = true
	if !unseen || t.attempts+1 < c.cfg.MaxAttempts(t.at.topic) {
		t.attempts++
	}
	c.mark(t.at)
}

// taskHeap is ordered by due, then by arrival; nothing but delayed tasks has a due.
type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].order < h[j].order
}

func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap's own.
func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.in, t.index = h, len(*h)
	*h = append(*h, t)
}

// Pop is heap's own.
func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.in = nil
	return t
}

func (h *taskHeap) take(i int) *task { return heap.Remove(h, i).(*task) }

// lane holds the tasks of one key; message by message there is one lane for all.
type lane struct {
	key   string
	hash  uint64
	ready taskHeap
	tasks int     // and messages of Core.held
	out   int     // of them with a member
	on    *member // that has them
	todo  bool    // in Core.todo, or in a member's waiting
	owner *member
	gen   uint64 // of the set of members for which owner was found
}

func (c *Core) laneOf(k string) *lane {
	l := c.lanes[k]
	if l == nil {
		l = &lane{key: k, hash: hash(k)}
		c.lanes[k] = l
	}
	l.tasks++
	return l
}

// leave ends what laneOf began.
func (c *Core) leave(l *lane) {
	if l.tasks--; l.tasks == 0 {
		delete(c.lanes, l.key)
	}
}

// rests notes that a member has one task less of the lane: once it has none, the key may move.
func (c *Core) rests(l *lane) {
	if l.out--; l.out == 0 {
		l.on = nil
		c.list(l)
	}
}

func (c *Core) list(l *lane) {
	if !l.todo && len(l.ready) > 0 {
		l.todo = true
		c.todo = append(c.todo, l)
	}
}

// ready has a task that no member has wait for one.
func (c *Core) ready(t *task) {
	t.due = 0
	heap.Push(&t.lane.ready, t)
	c.list(t.lane)
}

func (c *Core) waitsForMember(t *task, sign int) {
	c.queued += sign
	c.bytes += sign * len(t.m.Frame)
}

// drop forgets a task, wherever it is; its position was taken care of.
func (c *Core) drop(t *task) {
	if t.member != nil {
		c.without(t)
	}
	if t.in != nil {
		t.in.take(t.index)
	}
	c.waitsForMember(t, -1)
	delete(t.at.tasks, t.m.Seq)
	c.tasks--
	c.kept -= taskBytes + len(t.m.Frame)
	c.leave(t.lane)
}

// Settle takes a member's word on a message.
func (c *Core) Settle(id MemberID, s *meshv1.GroupSettle) {
	p := c.places[s.GetTopic()]
	if p == nil || p.epoch != s.GetEpoch() {
		return
	}
	t := p.tasks[s.GetSeq()]
	if s.GetHow() == meshv1.GroupSettle_HOW_ACKED {
		c.acked(p, t, s.GetSeq())
		return
	}
	k := key{p.topic, p.epoch, s.GetSeq()}
	if h, ok := c.held[k]; ok && h.m.id == id {
		c.unhold(k, s.GetHow() != meshv1.GroupSettle_HOW_UNSENT)
	}
	if t == nil || t.member == nil || t.member.id != id {
		return // it is somebody else's by now
	}
	c.back(t, s.GetHow(), int64(s.GetDelayMs())*1e6, false)
}

// acked settles a message, whoever had it: it was processed.
func (c *Core) acked(p *place, t *task, seq uint64) {
	c.unhold(key{p.topic, p.epoch, seq}, false)
	if t == nil && (!p.cur.Open(seq) || p.cur.Has(seq)) {
		return
	}
	if t != nil {
		c.drop(t)
	}
	if p.head < seq { // a member had it, so it is there
		p.head = seq
		c.level(p)
	}
	p.cur.Settle(seq, seq)
	c.mark(p)
}

// ackedBefore takes what members ACKed under a dispatcher before, which may not have stored it. In
// a group that is new nobody has ACKed anything: who did was a member of one that was deleted.
func (c *Core) ackedBefore(a *meshv1.GroupAcked) {
	p := c.places[a.GetTopic()]
	if !c.resumed || p == nil || p.epoch != a.GetEpoch() {
		return
	}
	for _, seq := range a.GetSeqs() {
		c.acked(p, p.tasks[seq], seq)
	}
}

// back takes a message from its member, to be assigned again, or to be given up. unseen says that
// nobody knows whether the member had it.
func (c *Core) back(t *task, how meshv1.GroupSettle_How, delay int64, unseen bool) {
	m := t.member
	c.without(t)
	if how != meshv1.GroupSettle_HOW_UNSENT {
		c.tried(t, unseen)
	}
	if how != meshv1.GroupSettle_HOW_NACKED {
		t.last = m
	}
	switch {
	case !unseen && t.attempts >= c.cfg.MaxAttempts(t.at.topic):
		c.letter(t.at, t.m, t.attempts, wirev1.Code_CODE_ATTEMPTS_EXHAUSTED)
		c.drop(t)
	case delay > 0:
		t.due = c.now + delay
		heap.Push(&c.delayed, t)
	default:
		c.ready(t)
	}
}
