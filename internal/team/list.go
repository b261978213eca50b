package team

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Set is what the teams of a user grant, in the order of their names, and nil from there on: users
// of the same teams have equal sets.
type Set [MaxOfUser]*identity.Grants

// List is the teams and who is in them as of a version. It is never changed, and safe for
// concurrent use.
type List struct {
	version uint64
	teams   map[string]*kept
	users   newest.Map[string, []place]
}

// kept is a team.
type kept struct {
	name   string
	born   uint64           // the version with which it was made
	grants *identity.Grants // nil: none
}

// place is a user's membership.
type place struct {
	team  string
	since uint64 // its version
}

// Version of a list; nil has none.
func (l *List) Version() uint64 {
	if l == nil {
		return 0
	}
	return l.version
}

// Len is how many teams a list has.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	return len(l.teams)
}

// Of is what the teams of a user grant. It looks into some maps, and takes no lock.
func (l *List) Of(user string) (s Set) {
	if l == nil {
		return s
	}
	places, _ := l.users.Get(user)
	n := 0
	for _, p := range places {
		if t := l.live(p); t != nil && t.grants != nil && n < MaxOfUser {
			s[n] = t.grants
			n++
		}
	}
	return s
}

// live is the team of a place; nil: that is gone, or is another one of the same name.
func (l *List) live(p place) *kept {
	t := l.teams[p.team]
	if t == nil || p.since < t.born {
		return nil
	}
	return t
}

// NewList is a list of entries.
func NewList(version uint64, entries ...*meshv1.TeamEntry) *List {
	l, _ := (*List)(nil).with(version, false, entries)
	return l
}

// with is the list after all changes up to a version, in their order; anew: after nothing else. bad
// are teams whose filters this program does not understand, which grant nothing. The receiver may
// be nil.
func (l *List) with(version uint64, anew bool, entries []*meshv1.TeamEntry) (next *List, bad []error) {
	next = &List{version: version, teams: map[string]*kept{}}
	if l != nil && !anew {
		next.teams, next.users = maps.Clone(l.teams), l.users
	}
	for _, e := range entries {
		switch name := e.GetTeam().GetName(); {
		case e.GetUser() != "":
		case e.GetRemoved():
			delete(next.teams, name)
		default:
			grants, err := Grants(e.GetTeam())
			if err != nil {
				bad = append(bad, err)
			}
			next.teams[name] = &kept{name: name, born: e.GetBorn(), grants: grants}
		}
	}
	next.users = next.users.With(next.moved(entries), func(all []place) bool {
		return !slices.ContainsFunc(all, func(p place) bool { return next.live(p) != nil })
	})
	return next, bad
}

// moved is where users are after changes. The teams are as they are after them.
func (l *List) moved(entries []*meshv1.TeamEntry) map[string][]place {
	changes := map[string][]place{}
	for _, e := range entries {
		user := e.GetUser()
		if user == "" {
			continue
		}
		name := e.GetTeam().GetName()
		if t := l.teams[name]; t != nil {
			name = t.name // one text for all of its users
		}
		places, again := changes[user]
		if !again {
			before, _ := l.users.Get(user)
			places = slices.Clone(before)
		}
		p := place{team: name, since: e.GetVersion()}
		places = slices.DeleteFunc(places, func(other place) bool { return other.team == name || l.live(other) == nil })
		if !e.GetRemoved() && l.live(p) != nil {
			at, _ := slices.BinarySearchFunc(places, p, func(a, b place) int { return cmp.Compare(a.team, b.team) })
			places = slices.Insert(places, at, p)
		}
		changes[user] = places
	}
	return changes
}
