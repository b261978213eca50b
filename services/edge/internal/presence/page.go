package presence

import (
	members "github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// ListMembers visits the members of a topic, and keeps those with the lowest ids.
func (w *Watch) ListMembers(e exchange.ListMembers) {
	page := &memberPage{most: e.Limit}
	w.cfg.Delivery.Subscribers(e.Topic, func(c exchange.Conn) {
		if id := w.cfg.Delivery.ConnectionID(c); id > e.After && page.takes(id) {
			since, _ := w.Since(c, e.Topic)
			page.put(w.member(c, "", since))
		}
	}, func() { e.Reply(page.members, page.more) })
}

// memberPage is a heap of members, with the highest id on top.
type memberPage struct {
	members []*members.Member
	most    int
	more    bool // there was one that is not here
}

// takes reports whether a member with this id has a place.
func (p *memberPage) takes(id uint64) bool {
	if len(p.members) < p.most {
		return true
	}
	p.more = true
	return p.most > 0 && id < p.members[0].GetConnectionId()
}

func (p *memberPage) put(m *members.Member) {
	id := func(i int) uint64 { return p.members[i].GetConnectionId() }
	if len(p.members) < p.most {
		p.members = append(p.members, m)
		for i := len(p.members) - 1; i > 0 && id(i) > id((i-1)/2); i = (i - 1) / 2 {
			p.members[i], p.members[(i-1)/2] = p.members[(i-1)/2], p.members[i]
		}
		return
	}
	p.members[0] = m
	for i := 0; ; {
		low := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(p.members); child++ {
			if id(child) > id(low) {
				low = child
			}
		}
		if low == i {
			return
		}
		p.members[i], p.members[low] = p.members[low], p.members[i]
		i = low
	}
}
