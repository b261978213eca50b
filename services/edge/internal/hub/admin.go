package hub

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// disconnect closes the connections of a client or user, looking at some slots at a time.
type disconnect struct {
	event exchange.Disconnect
	next  uint32
	n     int
}

func (j *disconnect) step(h *Hub) bool {
	for range fanSlice {
		if j.next >= h.conns.len() {
			if j.event.Reply != nil {
				j.event.Reply(j.n)
			}
			return true
		}
		c := h.conns.get(j.next)
		j.next++
		// Without authentication no connection has a user.
		if c.state != stateOpen || j.event.ClientID == "" || c.clientID != j.event.ClientID {
			continue
		}
		j.n++
		why := j.event.Code
		if why == wirev1.Code_CODE_OK {
			why = wirev1.Code_CODE_CANCELLED
		}
		h.fail(c, why, j.event.Reason)
	}
	return false
}

// count counts, for one topic after the other, the connections with a subscription that matches it. Subscriptions that come or go while
// it is under way may be counted or not.
type count struct {
	event  exchange.Count
	counts []uint64
	begun  bool // the topic after counts
	n      uint64
	track  int      // of its tracks, next
	wild   []subRef // with wildcards, that match
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
		j.begun, j.n, j.track, j.wild = true, 0, 0, nil
		if checkTopic(name) == nil {
			j.wild = h.matching(nil, name)
		}
	}
	if !j.slice(h, h.topics[name]) {
		return false
	}
	j.counts, j.begun = append(j.counts, j.n), false
	return false
}

// slice looks at some subscriptions of the topic in hand, and says whether that was the end.
func (j *count) slice(h *Hub, ts *topicState) bool {
	left := fanSlice
	for ; ts != nil && j.track < len(ts.tracks) && left > 0; left-- {
		j.seen(h, ts.tracks[j.track].c)
		j.track++
	}
	for ; left > 0 && len(j.wild) > 0; left-- {
		if s := j.wild[0].get(); s != nil && s.active {
			j.seen(h, s.c)
		}
		j.wild = j.wild[1:]
	}
	return left > 0
}

func (j *count) seen(h *Hub, c *conn) {
	if c.counted != h.counting {
		c.counted = h.counting
		j.n++
	}
}
