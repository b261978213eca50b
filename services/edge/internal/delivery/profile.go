package delivery

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// setProfile has the connection's messages ranked for p from now on. The rankings that are asked
// for already are of the one before.
func (h *Hub) setProfile(c *conn, p *exchange.Profile) {
	if p == c.profile {
		return
	}
	h.conns.more(c).profile = p
	h.conns.less(c)
}
