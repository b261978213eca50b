package delivery

import (
	"math"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
)

// disconnect closes the connections of a client or user, looking at some slots at a time: 100,000
// of them are some milliseconds in slices of some microseconds, which costs less than an index that
// every connection would have to be in.
type disconnect struct {
	event exchange.Disconnect
	who   whom
	next  uint32
	n     int
}

func (j *disconnect) step(h *Hub) bool {
	for n := 0; n < fanSlice; n += 1 + h.toll() {
		if j.next >= h.conns.len() {
			if j.event.Reply != nil {
				j.event.Reply(j.n)
			}
			return true
		}
		c := h.conns.get(j.next)
		j.next++
		if !j.who.has(c) {
			continue
		}
		j.n++
		why := j.event.Code
		if why == wirev1.Code_CODE_OK {
			why = wirev1.Code_CODE_CANCELLED
		}
		h.fail(c, why, j.event.Reason)
		h.looked(8 * looksAsOne)
	}
	return false
}

// count counts, for one topic after the other, the connections with a subscription that matches it.
// Subscriptions that come or go while it is under way may be counted or not.
type count struct {
	event   exchange.Count
	counts  []uint64
	begun   bool // the topic after counts
	n       uint64
	track   int                // of its tracks, next
	wild    []*filter          // that match; nil: nobody has that one any more
	at      int                // subscriptions of the first that are left, at most
	members []*membership.List // of groups, that match; nil: nobody has that one any more
	each    func(*conn)
}

func (j *count) step(h *Hub) bool {
	if h.countJob == nil {
		h.countJob = j
	}
	if h.countJob != j {
		return false // the marks on connections are of one count at a time
	}
	if len(j.counts) == len(j.event.Topics) {
		h.countJob = nil
		j.event.Reply(j.counts)
		return true
	}
	name := j.event.Topics[len(j.counts)]
	if !j.begun {
		h.counting++
		j.begun, j.n, j.track, j.wild, j.members = true, 0, 0, nil, nil
		j.at = math.MaxInt
		if checkTopic(name) == nil {
			j.wild = h.wildcards.index.Match(nil, name)
			j.members = h.groups.room.Of(name)
		}
	}
	if !j.slice(h, h.topics.Get(name)) {
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
			j.at = min(j.at, f.subs.Len())
		}
		if f == nil || j.at == 0 {
			j.wild, j.at = j.wild[1:], math.MaxInt
			continue
		}
		j.at--
		if s := f.subs.At(j.at); s.active {
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
	if c.counted == h.counting || c.state != stateOpen {
		return
	}
	c.counted = h.counting
	j.n++
	if j.each != nil {
		j.each(c)
	}
}
