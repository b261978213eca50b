package promise

import (
	"slices"
	"time"
)

// teamGrace is how old an ACK of a group's message must be to count as stored when the edge that
// took it is killed: its dispatcher gathers ACKs for about a second, may die before they are
// stored, and is replaced within some seconds more, which that edge tells what it knows.
const teamGrace = 2 * ackGrace

// team is a group: its members' diaries, read as one.
type team struct {
	v       *Verdict
	h       *History
	name    string
	members []*Diary
	log     map[place]uint64
	letters map[place]bool

	seen    map[place]sight
	fresh   map[place]bool // came with attempt 0
	high    map[string]uint64
	waiting map[*Diary]map[place]bool // un-ACKed on the member's connection
}

// line is one event of a member.
type line struct {
	*Event
	of *Diary
}

func (t *team) read() {
	var lines []line
	for _, d := range t.members {
		t.waiting[d] = map[place]bool{}
		for i := range d.Events {
			lines = append(lines, line{&d.Events[i], d})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.At.Compare(b.At) })
	for _, l := range lines {
		p := placed(t.h, l.Event)
		switch l.Kind {
		case Connected:
			t.v.Connections++
			clear(t.waiting[l.of])
		case Delivered:
			t.delivered(l, p)
		case Acked, Nacked:
			delete(t.waiting[l.of], p)
			if s, came := t.seen[p]; came && l.Kind == Acked {
				s.acked, s.ackedAt, s.ackConn, s.ackedBy = true, l.At, l.Conn, l.of
				t.seen[p] = s
			}
		}
	}
}

// killedSoon is how much later an ACK may be written down than it was sent: it may have reached an
// edge that was killed in the meantime.
const killedSoon = time.Second

// aged is how long the edge that took an ACK lived with it, until at most. An outage of everything
// keeps nobody who is dead from storing what they knew.
func (h *History) aged(s sight, until time.Time) time.Duration {
	for _, at := range h.Killed[s.ackedBy.Edges[s.ackConn-1]] {
		if at.After(s.ackedAt.Add(-killedSoon)) && at.Before(until) {
			until = at
		}
	}
	return max(0, until.Sub(s.ackedAt))
}

func (t *team) delivered(l line, p place) {
	t.v.Deliveries++
	if id, stored := t.log[p]; !stored || id != l.ID || !l.Intact {
		t.v.breach(Authentic, "%s: %v came with id %d (intact: %v), the log has %d (there: %v)", l.of.Name, p, l.ID, l.Intact, id, stored)
		return
	}
	s, again := t.seen[p]
	var age time.Duration
	if again && s.acked {
		age = t.h.aged(s, l.At)
		t.v.forgot(age)
	}
	switch {
	case !again:
		if t.members[0].Sticky && p.seq < t.high[p.topic] {
			t.v.breach(FirstInOrder, "%s: %s seq %d came after %d", t.name, p.topic, p.seq, t.high[p.topic])
		}
		t.high[p.topic] = max(t.high[p.topic], p.seq)
	case l.Attempt == 0 && t.fresh[p]:
		// one may arrive after others that say so: from an edge that hung
		t.v.breach(Redelivery, "%s: %v came again to %s and does not say so", t.name, p, l.of.Name)
	case age > t.h.grace(teamGrace):
		t.v.breach(Redelivery, "%s: %v came again to %s, though its ACK was with an edge for %s", t.name, p, l.of.Name, age.Round(time.Millisecond))
	}
	if again {
		t.v.Redeliveries++
	}
	t.fresh[p] = t.fresh[p] || l.Attempt == 0
	t.seen[p] = s
	t.waiting[l.of][p] = true
	if n := len(t.waiting[l.of]); n > l.of.Window {
		t.v.breach(Windowed, "%s: %d un-ACKed, with %v", l.of.Name, n, p)
	}
}

// close checks what is owed to the group at the end.
func (t *team) close() {
	for _, topic := range t.members[0].Topics {
		for _, m := range t.h.Log[topic] {
			p := place{topic, m.Epoch, m.Seq}
			s, came := t.seen[p]
			poison := t.h.Poison != nil && t.h.Poison(m.ID)
			switch {
			case !came:
				t.v.breach(Complete, "%s: %v (id %d) never came to a member", t.name, p, m.ID)
			case !poison && !s.acked:
				t.v.breach(Complete, "%s: %v came and could not be ACKed", t.name, p)
			case poison && !t.letters[p]:
				t.v.breach(DeadLetters, "%s has none for %v, which it always refused", t.name, p)
			}
		}
	}
}
