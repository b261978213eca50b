package delivery

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/features"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// checkProfile is a refusal for what a Hello can't be ranked for.
func checkProfile(m *wirev1.Hello) *code.Error {
	if err := features.Check(m.GetProfile(), m.GetProfileVector(), features.ProfileDimensions); err != nil {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "profile: "+err.Error())
	}
	return nil
}

// setProfile has the connection's messages ranked for p from now on. The rankings that are asked
// for already are of the one before.
func (h *Hub) setProfile(c *conn, p *exchange.Profile) {
	if p == c.profile {
		return
	}
	h.more(c).profile = p
	h.less(c)
}

// profiling replaces the profile of the connections of a client or user, looking at some slots at a
// time.
type profiling struct {
	event exchange.SetProfile
	who   whom
	next  uint32
	n     int
}

func (j *profiling) step(h *Hub) bool {
	for range fanSlice {
		if j.next >= h.conns.len() {
			j.event.Reply(j.n)
			return true
		}
		c := h.conns.get(j.next)
		j.next++
		if j.who.has(c) {
			j.n++
			h.setProfile(c, j.event.Profile)
		}
	}
	return false
}
