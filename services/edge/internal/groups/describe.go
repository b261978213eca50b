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

// Describe says what this edge knows of its groups.
func (g *Groups) Describe(ctx context.Context) []Description {
	described := make(chan []Description, 1)
	g.ops.Do(func() { described <- g.describe() })
	select {
	case all := <-described:
		return all
	case <-ctx.Done():
	case <-g.work.Context().Done():
	}
	return nil
}

func (g *Groups) describe() (all []Description) {
	for _, s := range g.groups {
		one := Description{Group: s.name, DispatchedBy: s.at}
		for _, m := range s.members {
			one.Members = append(one.Members, MemberDescription{Edge: g.cfg.Edge, ID: m.id, Has: len(m.has), Window: int(m.window)})
		}
		sortMembers(one.Members)
		if s.dispatcher != nil {
			one.Dispatcher = s.dispatcher.describe(g.now)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Description) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

func (d *dispatcher) describe(now time.Time) *DispatcherDescription {
	one := &DispatcherDescription{Open: d.open, Lease: d.until, Waiting: d.core.Waiting()}
	for _, h := range d.core.Holders(int64(d.since(now))) {
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
