package delivery

import "github.com/pushmesh/pushmesh/internal/topic"

// members are the members of groups that subscribed to one filter on this loop.
type members struct {
	filter string
	all    []*membership
}

func (h *Hub) addMember(g *membership) {
	l := h.members[g.filter]
	if l == nil {
		l = &members{filter: g.filter}
		h.members[g.filter] = l
		if topic.IsFilter(g.filter) {
			h.memberAt.Add(g.filter, l)
		}
	}
	g.of, g.at = l, len(l.all)
	l.all = append(l.all, g)
}

func (h *Hub) dropMember(g *membership) {
	l, last := g.of, len(g.of.all)-1
	l.all[g.at] = l.all[last]
	l.all[g.at].at = g.at
	l.all[last] = nil
	if l.all = l.all[:last]; last > 0 {
		return
	}
	if h.countJob != nil {
		forget(h.countJob.members, l)
	}
	if topic.IsFilter(l.filter) {
		h.memberAt.Remove(l.filter, l)
	}
	delete(h.members, l.filter)
}

// membersOf are the lists whose filters match a topic.
func (h *Hub) membersOf(name string) []*members {
	all := h.memberAt.Match(nil, name)
	if l := h.members[name]; l != nil {
		all = append(all, l)
	}
	return all
}
