package delivery

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery/sendq"
)

// Ranked delivery. Candidates of a topic gather for a window (gather.go) or come from the log, as
// an arrival; both make a ranking for all who wait for them (ranking.go). Its answer gives each
// track an order in which it hands messages on (ranked.go), as far as windows and queue have room.
// Between its rankings a track is behind, and reads what it does not find in a window from the log:
// so nothing that happens to a ranking loses a message.

// rankedDelivery has candidates gather, asks for rankings, and hands on what they say.
type rankedDelivery struct {
	hub *Hub

	// Candidates that gather, by topic and by serial, rankings under way, and the bytes of both.
	gathers  map[string]*gather
	bySerial map[uint64]*gather
	rankings map[uint64]*ranking
	bytes    int
	serials  uint64

	taken []bool   // scratch: places that a member does not get behind the best
	best  []uint32 // scratch: places of the best, ascending
}

// ranked is what the track of subscriptions with rank_top_k has beside.
type ranked struct {
	topK  uint32   // 0: one of its subscriptions is not ranked
	level bool     // the last range reached the head of the log
	asked *ranking // under way, or answered and not taken up
	place int      // of the track among its members
	order lineup
	// gathered is the serial of the ephemeral candidates that it is a member of.
	gathered uint64
}

// lineup is what a track hands on, in this order: the best, then those from a seq to another, but
// for some.
type lineup struct {
	best     []ordered
	from, to uint64     // from > to: none
	skip     []uint64   // ascending
	mark     sendq.Mark // of those behind the best
}

type ordered struct {
	seq  uint64
	mark sendq.Mark
}

// next is what comes next; ok is false where nothing is left.
func (o *lineup) next() (next ordered, ok bool) {
	if len(o.best) > 0 {
		return o.best[0], true
	}
	for o.from <= o.to && o.to > 0 {
		for len(o.skip) > 0 && o.skip[0] < o.from {
			o.skip = o.skip[1:]
		}
		if len(o.skip) == 0 || o.skip[0] != o.from {
			return ordered{o.from, o.mark}, true
		}
		o.from++
	}
	*o = lineup{}
	return ordered{}, false
}

// pop takes away what next said.
func (o *lineup) pop() {
	if len(o.best) > 0 {
		o.best = o.best[1:]
	} else {
		o.from++
	}
}

// putBack has a message that was taken out of the queue handed on again, before all others.
func (o *lineup) putBack(seq uint64, m sendq.Mark) {
	o.best = append([]ordered{{seq, m}}, o.best...)
}

// subscribe makes a new subscription one that is ranked.
func (d *rankedDelivery) subscribe(s *sub, topK uint32) {
	if s.subMore == noSubMore {
		s.subMore = d.hub.subMores.Take()
	}
	s.topK = topK
	if s.kind == kindPlain {
		s.kind = kindOwn
	}
}

// settle works out how many of the best the subscriptions of a track want together: they get
// one Message for all, so they are ranked if all want that.
func (d *rankedDelivery) settle(t *track) {
	topK := t.first.topK
	for _, s := range t.also {
		if s.topK == 0 {
			topK = 0
		}
		if topK > 0 {
			topK = max(topK, s.topK)
		}
	}
	if topK == 0 && t.rank == nil {
		return
	}
	more := d.hub.trackmore(t)
	if more.rank == nil {
		more.rank = &ranked{}
	}
	more.rank.topK = topK
	if t.overflow == overflowConflate || t.overflow == overflowDropOldest {
		// there is no oldest or newest in what comes best first
		t.overflow = overflowDefault
	}
}

// ranks reports whether the messages of a ranked track are ranked: its namespace may say otherwise
// by now.
func (d *rankedDelivery) ranks(t *track) bool {
	return t.rank.topK > 0 && d.hub.policy(t.topic).Rank != nil
}

// unrank forgets what was to be handed on.
func (r *ranked) unrank() { r.asked, r.order = nil, lineup{} }
