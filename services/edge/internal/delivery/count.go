package delivery

import (
	"math"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/request"
)

// count counts, for one topic after the other, the connections with a subscription that matches it.
// Subscriptions that come or go while it is under way may be counted or not.
type count struct {
	topics  []string
	done    func(counts []uint64)
	counts  []uint64
	begun   bool // the topic after counts
	n       uint64
	track   int                 // of its tracks, next
	wild    []*filter           // that match; nil: nobody has that one any more
	at      int                 // subscriptions of the first that are left, at most
	members []*membership.List  // of groups, that match; nil: nobody has that one any more
	visit   func(exchange.Conn) // of each; may be nil
}

// counts lets one count at a time mark connections.
type counts struct {
	serial uint32 // of the topic in hand, so that no connection counts twice
	job    *count
}

func (j *count) step(h *Hub) bool {
	if h.counts.job == nil {
		h.counts.job = j
	}
	if h.counts.job != j {
		return false // the marks on connections are of one count at a time
	}
	if len(j.counts) == len(j.topics) {
		h.counts.job = nil
		j.done(j.counts)
		return true
	}
	name := j.topics[len(j.counts)]
	if !j.begun {
		h.counts.serial++
		j.begun, j.n, j.track, j.wild, j.members = true, 0, 0, nil, nil
		j.at = math.MaxInt
		if request.Topic(name) == nil {
			j.wild = h.wildcards.index.Match(nil, name)
			j.members = h.groups.room.Of(name)
		}
	}
	if !j.slice(h, h.topics.byName.Get(name)) {
		return false
	}
	j.counts, j.begun = append(j.counts, j.n), false
	return false
}

// slice looks at some subscriptions of the topic in hand, and reports whether that was the end.
func (j *count) slice(h *Hub, ts *topicState) bool {
	left := fanSlice
	for ; ts != nil && j.track < ts.tracks.Len() && left > 0; left-- {
		j.seen(h, ts.tracks.At(j.track).c)
		j.track++
	}
	for ; left > 0 && len(j.wild) > 0; left-- {
		// From the last to the first: what takes the place of one that goes was seen, or will be.
		f := j.wild[0]
		if f != nil {
			j.at = min(j.at, f.Subscriptions.Len())
		}
		if f == nil || j.at == 0 {
			j.wild, j.at = j.wild[1:], math.MaxInt
			continue
		}
		j.at--
		if s := f.Subscriptions.At(j.at); s.active {
			j.seen(h, s.c)
		}
	}
	for ; left > 0 && len(j.members) > 0; left-- {
		l := j.members[0]
		if j.at = min(j.at, len(l.Members)); j.at == 0 {
			j.members, j.at = j.members[1:], math.MaxInt
			continue
		}
		j.at--
		if g := l.Members[j.at]; g.Open() {
			j.seen(h, h.conns.get(g.Conn.Slot))
		}
	}
	return left > 0
}

func (j *count) seen(h *Hub, c *conn) {
	if c.counted == h.counts.serial || c.state != stateOpen {
		return
	}
	c.counted = h.counts.serial
	j.n++
	if j.visit != nil {
		j.visit(h.handle(c))
	}
}
