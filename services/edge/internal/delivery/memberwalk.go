package delivery

import (
	"math"
	"strings"

	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// memberWalk tells of everybody who is a member of a filter's topics. It goes over the loop's
// slots, which nobody leaves for another; what comes meanwhile behind it was noted.
type memberWalk struct {
	f    *watchedFilter
	walk uint64
	next uint32 // slot
	// With wildcards, the connection in hand, and how many of its subscriptions and groups are
	// left. From the last to the first: what takes the place of one that goes was told of, or will
	// be.
	gen          uint32
	subs, groups int
	changes      []presence.Change
}

func (j *memberWalk) step(h *Hub) bool {
	if j.f.walk != j.walk {
		return true // another has begun, or nobody wants to know
	}
	for n := 0; n < walkSlice && j.next < h.conns.len(); n += 1 + h.toll() {
		c := h.conns.get(j.next)
		if c.state == stateOpen && !j.look(h, c) {
			continue
		}
		j.next++
		j.gen = 0
	}
	done := j.next >= h.conns.len()
	if done {
		j.changes = append(j.changes, presence.Change{Kind: presence.Walked, Filter: j.f.name, Walk: j.walk})
	}
	if len(j.changes) > 0 {
		h.mesh.TellMembers(h.cfg.Loop, j.changes)
		j.changes = nil
	}
	return done
}

// look tells of a connection, or of one of its subscriptions, and reports whether that was all.
func (j *memberWalk) look(h *Hub, c *conn) bool {
	if !j.f.wild {
		if since, is := h.isMember(c, j.f, ""); is {
			j.tell(h, c, "", since)
		}
		return true
	}
	if j.gen == 0 {
		j.gen, j.subs, j.groups = c.gen, math.MaxInt, math.MaxInt
	}
	if j.gen != c.gen {
		return true // of a new connection everything is noted
	}
	if j.subs = min(j.subs, c.subs.Len()); j.subs > 0 {
		j.subs--
		if s := c.subs.At(j.subs); s.counts() && !s.wildcard {
			j.named(h, c, s.topic.name, s.since)
		}
		return false
	}
	if j.groups = min(j.groups, len(c.groups)); j.groups > 0 {
		j.groups--
		if g := c.groups[j.groups]; g.Counts() && !topic.IsFilter(g.Filter) {
			j.named(h, c, g.Filter, g.Since)
		}
		return false
	}
	return true
}

func (j *memberWalk) named(h *Hub, c *conn, name string, since uint32) {
	if topic.Match(j.f.name, name) && h.cfg.PolicyFor(name).Presence {
		j.tell(h, c, strings.Clone(name), since)
	}
}

func (j *memberWalk) tell(h *Hub, c *conn, name string, since uint32) {
	j.changes = append(j.changes, presence.Change{Kind: presence.Joined, Filter: j.f.name, Walk: j.walk, Member: h.member(c, name, since)})
}

// listMembers counts the members of a topic, and keeps those with the lowest ids.
func (h *Hub) listMembers(e exchange.ListMembers) {
	page := &memberPage{most: e.Limit}
	h.jobs.push(&count{
		event: exchange.Count{Topics: []string{e.Topic}, Reply: func([]uint64) { e.Reply(page.members, page.more) }},
		each: func(c *conn) {
			if id := h.connID(c); id > e.After && page.takes(id) {
				page.put(h.member(c, "", h.subscribedAt(c, e.Topic)))
			}
		},
	})
}

// subscribedAt is when the oldest of the connection's subscriptions that match a topic was made.
func (h *Hub) subscribedAt(c *conn, name string) uint32 {
	since, _ := h.isMember(c, &watchedFilter{name: name}, "")
	return since
}

// memberPage is a heap of members, with the highest id on top.
type memberPage struct {
	members []*presence.Member
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

func (p *memberPage) put(m *presence.Member) {
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
