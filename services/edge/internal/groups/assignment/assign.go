package assignment

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// assign gives members what they have room for.
func (c *Core) assign() {
	if c.paused || c.now < c.begins || len(c.members) == 0 {
		return
	}
	for len(c.todo) > 0 {
		todo := c.todo
		c.todo = nil
		for _, l := range todo {
			l.todo = false
			if c.keys.sticky {
				c.assignKey(l)
			} else {
				c.assignEach(l)
			}
		}
		if !c.keys.sticky {
			break // its lane waits for room, without being listed anywhere
		}
	}
	if l := c.lanes[""]; l != nil && !c.keys.sticky {
		c.list(l)
	}
}

// assignEach gives each message to the least loaded member, if there is a choice not to the one
// that let it time out.
func (c *Core) assignEach(l *lane) {
	for len(l.ready) > 0 && len(c.idle) > 0 {
		t := l.ready.take(0)
		m := c.idle[0]
		if t.last == m && len(c.idle) > 1 {
			m = c.idle[1]
			if len(c.idle) > 2 && c.idle.Less(2, 1) {
				m = c.idle[2]
			}
		}
		c.give(t, m)
	}
}

// assignKey gives a key's messages to its member. While another has some un-ACKed, the key is on
// its way, and the next waits.
func (c *Core) assignKey(l *lane) {
	for len(l.ready) > 0 {
		m := c.ownerOf(l)
		switch {
		case m == nil, l.out > 0 && l.on != m:
			return // a member or an ACK lists it again
		case !m.room():
			l.todo = true
			m.waiting = append(m.waiting, l)
			return
		}
		c.give(l.ready.take(0), m)
	}
}

// ownerOf is the member with the highest hash of key and member together (rendezvous hashing:
// Thaler and Ravishankar 1998): when a member goes, its keys alone move.
func (c *Core) ownerOf(l *lane) *member {
	if l.gen == c.gen && l.owner != nil {
		return l.owner
	}
	var best *member
	var most uint64
	for _, m := range c.members {
		if m.window == 0 {
			continue
		}
		if w := mix(l.hash, m.hash); best == nil || w > most || w == most && m.hash > best.hash {
			best, most = m, w
		}
	}
	l.owner, l.gen = best, c.gen
	return best
}

// give hands a task to a member, unless its time is over.
func (c *Core) give(t *task, m *member) {
	if t.m.ExpiresAt != 0 && t.m.ExpiresAt <= c.wall {
		c.letter(t.at, t.m, t.attempts, wirev1.Code_CODE_EXPIRED)
		c.drop(t)
		return
	}
	c.with(t, m)
	c.stats.Assigned++
	attempt := t.attempt()
	if attempt > 0 {
		c.stats.Redelivered++
	}
	c.out.Assigned = append(c.out.Assigned, Assignment{m.id, t.m, attempt})
}

// with notes that a member has a task.
func (c *Core) with(t *task, m *member) {
	t.member = m
	m.tasks.push(t)
	c.turns++
	m.turn = c.turns
	t.turn, t.given = c.turns, c.now
	c.placed(m)
	t.lane.out++
	t.lane.on = m
	c.waitsForMember(t, -1)
}

// without notes that no member has it.
func (c *Core) without(t *task) {
	m := t.member
	t.member = nil
	m.tasks.remove(t)
	c.placed(m)
	c.rests(t.lane)
	c.waitsForMember(t, 1)
}

// ephemeral hands a message that no log has to one member at once: nothing waits for it, and it
// takes no part in windows.
func (c *Core) ephemeral(m *exchange.Message) {
	if m.ExpiresAt != 0 && m.ExpiresAt <= c.wall {
		c.stats.Expired++
		return
	}
	var to *member
	if c.keys.sticky {
		k := c.keys.Of(m)
		to = c.ownerOf(&lane{key: k, hash: hash(k)})
	} else {
		for _, o := range c.members {
			if o.window > 0 && (to == nil || o.turn < to.turn) {
				to = o
			}
		}
	}
	if to == nil || c.paused {
		c.stats.NoMember++
		return
	}
	c.turns++
	to.turn = c.turns
	c.placed(to)
	c.stats.Assigned++
	c.out.Assigned = append(c.out.Assigned, Assignment{to.id, m, 0})
}
