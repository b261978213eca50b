package groups

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Description is what an edge knows of one group, for people and tests.
type Description struct {
	Group string
	// DispatchedBy is the edge that dispatches; "" where that is not known.
	DispatchedBy string
	// Members here.
	Members []MemberDescription
	// Dispatcher here; nil: there is none.
	Dispatcher *DispatcherDescription
}

// MemberDescription is a member, as its edge knows it or as the dispatcher does.
type MemberDescription struct {
	Edge string
	ID   uint64
	// Has is how many messages it was assigned that are not settled, Window the most of them.
	Has, Window int
	// Oldest is how long it has had one of them, as the dispatcher knows.
	Oldest time.Duration
}

// DispatcherDescription is a dispatcher.
type DispatcherDescription struct {
	// Open: its first positions are stored.
	Open  bool
	Lease time.Time
	// Waiting is how many messages no member has.
	Waiting int
	Members []MemberDescription
}

// What is described at once: it is done in one piece, and messages wait meanwhile.
const (
	describedMost    = 1000 // groups
	describedMembers = 1000 // of one
)

// Describe says what this edge knows of one group, by its name, a slash and its filter, or with ""
// of some of its groups: any 1,000. Of a group that has more members, any 1,000 are described.
func (g *Groups) Describe(ctx context.Context, group string) []Description {
	described := make(chan []Description, 1)
	g.ops.Do(func() { described <- g.describe(group) })
	select {
	case all := <-described:
		return all
	case <-ctx.Done():
	case <-g.work.Context().Done():
	}
	return nil
}

func (g *Groups) describe(group string) (all []Description) {
	if s := g.groups[group]; s != nil {
		return []Description{g.describeOne(s)}
	}
	if group != "" {
		return nil
	}
	for _, s := range g.groups {
		if len(all) == describedMost {
			break
		}
		all = append(all, g.describeOne(s))
	}
	slices.SortFunc(all, func(a, b Description) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

func (g *Groups) describeOne(s *share) Description {
	one := Description{Group: s.name, DispatchedBy: s.at}
	for _, m := range s.members {
		if len(one.Members) == describedMembers {
			break
		}
		one.Members = append(one.Members, MemberDescription{Edge: g.cfg.Edge, ID: m.id, Has: len(m.has), Window: int(m.window)})
	}
	sortMembers(one.Members)
	if s.dispatcher != nil {
		one.Dispatcher = s.dispatcher.describe(g.now)
	}
	return one
}

func (d *dispatcher) describe(now time.Time) *DispatcherDescription {
	one := &DispatcherDescription{Open: d.open, Lease: d.until, Waiting: d.core.Waiting()}
	for _, h := range d.core.Holders(int64(d.since(now)), describedMembers) {
		one.Members = append(one.Members, MemberDescription{Edge: h.Member.Edge, ID: h.Member.ID, Has: h.Has, Window: h.Window, Oldest: h.Oldest})
	}
	sortMembers(one.Members)
	return one
}

func sortMembers(all []MemberDescription) {
	slices.SortFunc(all, func(a, b MemberDescription) int {
		return cmp.Or(cmp.Compare(a.Edge, b.Edge), cmp.Compare(a.ID, b.ID))
	})
}
