package assignment

import (
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// place is where the group stands in one durable topic.
type place struct {
	topic string
	epoch uint64
	cur   *cursor.Cursor
	// pos: everything up to here was queued or is settled. head is the highest seq known.
	pos, head uint64
	// suspect: what is not settled up to here may have been delivered by a dispatcher before that
	// could not note it.
	suspect uint64

	waits   bool // in Core.behind
	reading bool
	asked   uint64 // first seq of the range that is waited for
	retryAt int64
	changed bool // in Core.changed
	tasks   map[uint64]*task
}

// readAgain is when a failed read is tried again, in nanoseconds.
const readAgain = 500e6

// Begin says where the group stands.
type Begin struct {
	// Filter of the group, a topic or one with wildcards.
	Filter string
	// Heads of the durable topics that match.
	Heads []exchange.Head
	// Resumed: the group existed before, and these are its positions. Topics without one appeared
	// later.
	Resumed bool
	Cursors []*meshv1.SessionCursor
	// Start of a group that is new.
	Start exchange.GroupStart
	// Unclean: the dispatcher before did not hand over. What it may have delivered is delivered
	// again with attempt 1 at least.
	Unclean bool
	// Grace in nanoseconds, from now on, for members to say what they have.
	Grace int64
}

// Begin is called once, before anything else but Advance and Join.
func (c *Core) Begin(b *Begin) {
	c.begins = c.now + b.Grace
	if !topic.IsFilter(b.Filter) {
		c.exact = b.Filter
	}
	c.unclean, c.resumed, c.stored = b.Unclean, b.Resumed, make(map[string]*meshv1.SessionCursor, len(b.Cursors))
	for _, s := range b.Cursors {
		c.stored[s.GetTopic()] = s
	}
	for _, h := range b.Heads {
		h.Oldest = max(h.Oldest, 1)
		p := c.add(h.Topic, h.Epoch)
		switch {
		case c.resume(p):
		case b.Resumed:
			p.cur.Floor = h.Oldest - 1 // it appeared later, or its log was rewound
		default:
			p.cur.Floor = floor(&b.Start, h, c.exact == "")
		}
		p.pos, p.head = p.cur.Floor, max(h.Head, p.cur.Floor)
		if b.Unclean {
			p.suspect = p.head
		}
		c.retained(p, h.Oldest)
		c.mark(p)
		c.level(p)
	}
	c.begun = true
	for k := range c.held {
		if p := c.places[k.topic]; p == nil || !p.unread(k) {
			c.unhold(k, false)
		}
	}
}

// resume takes up the position that is stored for a topic. It counts also where it is beyond the
// head that was found: a log that was set back has a new epoch, but a store that hung may answer
// with an older head.
func (c *Core) resume(p *place) bool {
	s := c.stored[p.topic]
	delete(c.stored, p.topic)
	if s == nil || s.GetEpoch() != p.epoch {
		return false
	}
	p.cur = cursor.New(s)
	return true
}

// floor is the last seq of a topic that a new group does not get. A position counts whatever the
// start says of topics that are not named.
func floor(s *exchange.GroupStart, h exchange.Head, wildcard bool) uint64 {
	for _, p := range s.Positions {
		if p.GetTopic() == h.Topic {
			return behind(h, p.GetEpoch(), p.GetSeq())
		}
	}
	switch s.Mode {
	case wirev1.Start_START_EARLIEST:
		return h.Oldest - 1
	case wirev1.Start_START_LAST_N:
		return max(h.Head-min(h.Head, s.Seq), h.Oldest-1)
	case wirev1.Start_START_AFTER_SEQ:
		if !wildcard && len(s.Positions) == 0 {
			return behind(h, s.Epoch, s.Seq)
		}
	}
	return h.Head
}

// behind is seq, or what comes before everything that there is where the log that it is of is gone.
func behind(h exchange.Head, epoch, seq uint64) uint64 {
	if epoch != 0 && epoch != h.Epoch || seq > h.Head {
		return h.Oldest - 1
	}
	return seq
}

func (c *Core) add(name string, epoch uint64) *place {
	p := &place{topic: name, epoch: epoch, cur: &cursor.Cursor{Epoch: epoch}, tasks: map[uint64]*task{}}
	c.places[name] = p
	return p
}

// retained skips what retention took before it was queued.
func (c *Core) retained(p *place, oldest uint64) {
	if oldest <= p.pos+1 {
		return
	}
	c.stats.Missed += p.cur.Missing(p.pos+1, oldest-1)
	p.cur.Settle(p.pos+1, oldest-1)
	p.pos = oldest - 1
	c.mark(p)
}

// level has the topic read on where it is not at its head.
func (c *Core) level(p *place) {
	if p.pos < p.head && !p.waits && !p.reading {
		p.waits = true
		c.behind = append(c.behind, p)
	}
}

// Live takes messages as they come: durable ones of a topic in order.
func (c *Core) Live(msgs []*exchange.Message) {
	for _, m := range msgs {
		if m.Seq == 0 {
			c.ephemeral(m)
			continue
		}
		p := c.places[m.Topic]
		if p == nil {
			if p = c.appeared(m); p == nil {
				return
			}
		}
		if m.Epoch > p.epoch {
			c.newEpoch(p, m.Epoch)
		}
		if m.Epoch < p.epoch {
			continue
		}
		p.head = max(p.head, m.Seq)
		if m.Seq == p.pos+1 && !p.waits && !p.reading && c.room(p) {
			c.queue(p, m)
			continue
		}
		c.level(p)
	}
}

// appeared makes the place of a topic that was not found when the dispatcher began; nil where the
// group has too many.
func (c *Core) appeared(m *exchange.Message) *place {
	if len(c.places) >= c.cfg.Topics {
		c.out.Over = wirev1.Code_CODE_TOO_MANY_TOPICS
		return nil
	}
	p := c.add(m.Topic, m.Epoch)
	if !c.resume(p) && c.exact != "" { // it was ephemeral when the group began
		p.cur.Floor = m.Seq - 1
	}
	p.pos = p.cur.Floor
	if c.unclean {
		p.suspect = m.Seq - 1
	}
	c.mark(p)
	return p
}

// newEpoch begins anew: what the members have of the old log is nothing to wait for.
func (c *Core) newEpoch(p *place, epoch uint64) {
	for _, t := range p.tasks {
		c.drop(t)
	}
	for k := range c.held {
		if k.topic == p.topic {
			c.unhold(k, false)
		}
	}
	p.epoch, p.cur = epoch, &cursor.Cursor{Epoch: epoch}
	p.pos, p.head, p.suspect = 0, 0, 0
	c.mark(p)
}

// room reports whether the topic's next message may be queued.
func (c *Core) room(p *place) bool {
	return len(c.members) > 0 && c.queued < c.cfg.QueueMessages && c.bytes < c.cfg.QueueBytes && p.cur.Open(p.pos+1) && !c.full()
}

// read asks for what may be queued.
func (c *Core) read() {
	kept := c.behind[:0]
	for i, p := range c.behind {
		if c.queued > c.cfg.QueueMessages/2 || c.bytes > c.cfg.QueueBytes/2 {
			kept = append(kept, c.behind[i:]...)
			break
		}
		if p.retryAt > c.now || !c.room(p) {
			kept = append(kept, p)
			continue
		}
		p.waits, p.reading, p.asked = false, true, p.pos+1
		c.out.Reads = append(c.out.Reads, Read{p.topic, p.epoch, p.pos + 1})
	}
	clear(c.behind[len(kept):])
	c.behind = kept
}

// Range answers a Read.
func (c *Core) Range(r *exchange.Range) {
	p := c.places[r.Topic]
	if p == nil || !p.reading || r.From != p.asked {
		return
	}
	p.reading = false
	switch {
	case r.Err != nil && code.Of(r.Err) != wirev1.Code_CODE_EPOCH_CHANGED, r.Epoch < p.epoch:
		p.retryAt = c.now + readAgain
		c.level(p)
		return
	case r.Epoch > p.epoch:
		c.newEpoch(p, r.Epoch)
		p.head = r.Head
		c.level(p)
		return
	}
	p.head = max(p.head, r.Head)
	before := p.pos
	for _, m := range r.Messages {
		if m.Seq <= p.pos {
			continue
		}
		c.retained(p, m.Seq)
		if !c.room(p) {
			c.level(p)
			return
		}
		c.queue(p, m)
	}
	c.retained(p, r.Oldest)
	if p.pos == before && p.pos < p.head {
		p.retryAt = c.now + readAgain // the log is not as far as it says
	}
	c.level(p)
}

// queue takes up the message after pos.
func (c *Core) queue(p *place, m *exchange.Message) {
	p.pos = m.Seq
	if p.cur.Has(m.Seq) {
		return
	}
	stored := p.cur.Attempts(m.Seq)
	t := &task{m: m, at: p, again: stored > 0 || m.Seq <= p.suspect}
	p.tasks[m.Seq] = t
	c.tasks++
	c.kept += taskBytes + len(m.Frame)
	c.order++
	t.order = c.order
	t.lane = c.laneOf(c.keys.Of(m))
	c.waitsForMember(t, 1)
	k := key{p.topic, p.epoch, m.Seq}
	if h, ok := c.held[k]; ok {
		c.unhold(k, false)
		t.attempts = h.attempt
		if stored > 0 {
			t.attempts = max(t.attempts, stored-1) // what is stored counts the delivery under way
		}
		c.with(t, h.m)
		return
	}
	if stored > 0 {
		// the last of them may have ended with its dispatcher: it is tried once more at least
		t.attempts = min(stored, max(c.cfg.MaxAttempts(p.topic), 1)-1)
	}
	c.ready(t)
}

// encode is the position with the attempts of what is un-ACKed.
func (p *place) encode() *meshv1.SessionCursor {
	for seq, t := range p.tasks {
		n := t.attempt()
		if t.member != nil {
			n = t.attempts + 1
		}
		p.cur.Attempted(seq, n)
	}
	return p.cur.Encode(p.topic)
}

// Reading are the reads that were not answered.
func (c *Core) Reading() (all []Read) {
	for _, p := range c.places {
		if p.reading {
			all = append(all, Read{p.topic, p.epoch, p.asked})
		}
	}
	return all
}
