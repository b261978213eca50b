package assignment

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// member of the group.
type member struct {
	id      MemberID
	hash    uint64
	window  int // 0: gets nothing more
	tasks   taskList
	unread  int     // of Core.held: it has them, and they are not read yet
	turn    uint64  // when it was given something last
	index   int     // in Core.idle; -1: not there
	waiting []*lane // for room
	asked   int64   // when it was asked what it has last, or began
}

func (m *member) load() int { return m.tasks.n + m.unread }

func (m *member) room() bool { return m.load() < m.window }

// memberHeap has members with room, the least loaded first; of equals the one whose turn is longest
// ago.
type memberHeap []*member

func (h memberHeap) Len() int { return len(h) }
func (h memberHeap) Less(i, j int) bool {
	if a, b := h[i].load(), h[j].load(); a != b {
		return a < b
	}
	return h[i].turn < h[j].turn
}

func (h memberHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap's own.
func (h *memberHeap) Push(x any) {
	m := x.(*member)
	m.index = len(*h)
	*h = append(*h, m)
}

// Pop is heap's own.
func (h *memberHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	m.index = -1
	return m
}

// placed puts a member where its load says.
func (c *Core) placed(m *member) {
	switch {
	case m.room() && m.index >= 0:
		heap.Fix(&c.idle, m.index)
	case m.room():
		heap.Push(&c.idle, m)
		if len(m.waiting) > 0 {
			c.todo = append(c.todo, m.waiting...)
			m.waiting = nil
		}
	case m.index >= 0:
		heap.Remove(&c.idle, m.index)
	}
}

// Join makes a member, or changes one. held is what it has: what a member is thought to have
// besides got lost on the way, but for what was assigned after it was asked. Of one that is known
// the words on messages came before, in their order: told again, one could be taken for a word on
// the message that the member was given since. ACKs are the same however often they come.
func (c *Core) Join(id MemberID, j *meshv1.GroupJoin) {
	m := c.members[id]
	known := m != nil
	if !known {
		m = &member{id: id, index: -1, asked: c.now, hash: hash(id.Edge + string(binary.BigEndian.AppendUint64(nil, id.ID)))}
		c.members[id] = m
		c.edges[id.Edge]++
	}
	if was := m.window > 0; was != (j.GetWindow() > 0) {
		m.window = int(j.GetWindow())
		c.regroup()
	}
	m.window = int(j.GetWindow())
	for _, s := range j.GetSettled() {
		if !known || s.GetHow() == meshv1.GroupSettle_HOW_ACKED {
			c.Settle(id, s)
		}
	}
	for _, a := range j.GetAcked() {
		c.ackedBefore(a)
	}
	c.adopt(m, j.GetHeld(), j.GetAsked())
	c.placed(m)
}

// adopt makes what a member has its own. asked is the turn up to which it knows; 0: all.
func (c *Core) adopt(m *member, held []*meshv1.GroupHeld, asked uint64) {
	has := make(map[key]bool, len(held))
	for _, h := range held {
		k := key{h.GetTopic(), h.GetEpoch(), h.GetSeq()}
		has[k] = true
		p := c.places[k.topic]
		if !c.begun || p != nil && p.unread(k) {
			c.hold(k, m, h) // before Begin places are not known
			continue
		}
		if p == nil || p.epoch != k.epoch {
			continue
		}
		t := p.tasks[k.seq]
		switch {
		case t != nil && t.member == nil:
			if t.in != nil {
				t.in.take(t.index)
			}
			t.attempts = max(t.attempts, h.GetAttempt())
			c.with(t, m)
		}
	}
	for k, h := range c.held {
		if h.m == m && !has[k] {
			c.unhold(k, true)
		}
	}
	if asked > 0 {
		for t := m.tasks.last; t != nil && t.turn > asked; t = t.before {
			has[key{t.at.topic, t.at.epoch, t.m.Seq}] = true
		}
	}
	c.backAll(m, has, true)
}

// backAll takes back what a member has, but for what kept names, in order. unseen is that of back.
func (c *Core) backAll(m *member, kept map[key]bool, unseen bool) {
	var all []*task
	for t := m.tasks.first; t != nil; t = t.behind {
		if !kept[key{t.at.topic, t.at.epoch, t.m.Seq}] {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *task) int { return cmp.Compare(a.order, b.order) })
	for _, t := range all {
		c.back(t, meshv1.GroupSettle_HOW_NACKED, 0, unseen)
	}
}

// hold notes that a member has a message that was not read yet.
func (c *Core) hold(k key, m *member, h *meshv1.GroupHeld) {
	c.unhold(k, false)
	l := c.laneOf(h.GetKey())
	l.out++
	l.on = m
	c.held[k] = holder{m, h.GetAttempt(), l}
	m.unread++
	c.placed(m)
}

// unhold ends that; missed says that it was an attempt without success.
func (c *Core) unhold(k key, missed bool) {
	h, ok := c.held[k]
	if !ok {
		return
	}
	delete(c.held, k)
	h.m.unread--
	c.placed(h.m)
	c.rests(h.lane)
	c.leave(h.lane)
	if p := c.places[k.topic]; missed && p != nil && p.epoch == k.epoch {
		p.cur.Attempted(k.seq, h.attempt+1)
		c.mark(p)
	}
}

// unread reports whether a message will be queued.
func (p *place) unread(k key) bool {
	return p.epoch == k.epoch && k.seq > p.pos && !p.cur.Has(k.seq)
}

// Leave ends a member whose connection has ended, or which has unsubscribed: what it has goes to
// others.
func (c *Core) Leave(id MemberID) { c.leaves(id, false) }

func (c *Core) leaves(id MemberID, unseen bool) {
	m := c.members[id]
	if m == nil {
		return
	}
	delete(c.members, id)
	if c.edges[id.Edge]--; c.edges[id.Edge] == 0 {
		delete(c.edges, id.Edge)
	}
	m.window = 0
	c.placed(m)
	c.todo = append(c.todo, m.waiting...)
	m.waiting = nil
	for k, h := range c.held {
		if h.m == m {
			c.unhold(k, true)
		}
	}
	c.regroup()
	c.backAll(m, nil, unseen)
}

// LeaveEdge ends all members of an edge that is gone.
func (c *Core) LeaveEdge(edge string) {
	for id := range c.members {
		if id.Edge == edge {
			c.leaves(id, true)
		}
	}
}

// regroup has keys find their members again, after the set changed.
func (c *Core) regroup() {
	c.gen++
	for _, m := range c.members {
		c.todo = append(c.todo, m.waiting...)
		m.waiting = nil
	}
	for _, l := range c.lanes {
		c.list(l)
	}
}

func hash(s string) uint64 { return xxhash.Sum64String(s) }

// mix makes a hash of two that is as good for every pair.
func mix(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the finaliser of splitmix64
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
