package delivery

import "github.com/pushmesh/pushmesh/services/edge/internal/ranking/ranked"

// Ranked delivery. Candidates of a topic gather for a window (gather.go) or come from the log, as
// an arrival; both make a ranking for all who wait for them (package ranked). Its answer gives each
// track an order in which it hands messages on (ranked.go), as far as windows and queue have room.
// Between its rankings a track is behind, and reads what it does not find in a window from the log:
// so nothing that happens to a ranking loses a message.

// rankedDelivery says what gathers for whom, and hands on what rankings say.
type rankedDelivery struct {
	hub *Hub

	room *ranked.Room[rankMember]

	taken []bool   // scratch: places that a member does not get behind the best
	best  []uint32 // scratch: places of the best, ascending
}

// rankState is what the track of subscriptions with rank_top_k has beside.
type rankState struct {
	topK  uint32                      // 0: one of its subscriptions is not ranked
	level bool                        // the last range reached the head of the log
	asked *ranked.Ranking[rankMember] // under way, or answered and not taken up
	place int                         // of the track among its members
	order ranked.Order
	// gathered is the serial of the ephemeral candidates that it is a member of.
	gathered uint64
}

// rankMember is a track, or a subscription without one.
type rankMember struct {
	track trackRef
	sub   subRef
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
	more := d.hub.tracks.more(t)
	if more.rank == nil {
		more.rank = &rankState{}
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
	return t.rank.topK > 0 && d.hub.topics.policy(t.topic).Rank != nil
}

// unrank forgets what was to be handed on.
func (r *rankState) unrank() { r.asked, r.order = nil, ranked.Order{} }
