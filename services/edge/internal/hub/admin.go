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

// count counts, for one topic at a time, the connections with a subscription that matches it.
type count struct {
	event  exchange.Count
	counts []uint64
}

func (j *count) step(h *Hub) bool {
	if len(j.counts) == len(j.event.Topics) {
		j.event.Reply(j.counts)
		return true
	}
	name := j.event.Topics[len(j.counts)]
	h.counting++
	n := uint64(0)
	seen := func(c *conn) {
		if c.counted != h.counting {
			c.counted = h.counting
			n++
		}
	}
	if ts := h.topics[name]; ts != nil {
		for _, t := range ts.tracks {
			seen(t.c)
		}
	}
	if checkTopic(name) == nil {
		for _, r := range h.matching(nil, name) {
			if s := r.get(); s.active {
				seen(s.c)
			}
		}
	}
	j.counts = append(j.counts, n)
	return false
}
