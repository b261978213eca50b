package team

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// rows are what a store keeps, by its rules, with few removed rows.
type rows struct {
	all           map[[2]string]*meshv1.TeamEntry
	version, gone uint64
	removed, page int
	between       func() // called after each page
}

func newRows(removed, page int) *rows {
	return &rows{all: map[[2]string]*meshv1.TeamEntry{}, version: 1, removed: removed, page: page}
}

func (r *rows) put(name string, filters ...string) {
	r.version++
	born := r.version
	if e := r.all[[2]string{name}]; e != nil && !e.Removed {
		born = e.Born
	}
	r.all[[2]string{name}] = &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: name, Subscribe: filters}, Version: r.version, Born: born}
}

func (r *rows) remove(name, user string) {
	e := r.all[[2]string{name, user}]
	if e == nil || e.Removed {
		return
	}
	r.version++
	r.all[[2]string{name, user}] = &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: name}, User: user, Version: r.version, Removed: true}
	for key := range r.all {
		if user == "" && key[0] == name && key[1] != "" {
			delete(r.all, key)
		}
	}
	var gone []*meshv1.TeamEntry
	for _, e := range r.sorted() {
		if e.Removed {
			gone = append(gone, e)
		}
	}
	for len(gone) > r.removed {
		r.gone = gone[0].Version
		delete(r.all, [2]string{gone[0].Team.Name, gone[0].User})
		gone = gone[1:]
	}
}

func (r *rows) add(name, user string) {
	t, e := r.all[[2]string{name}], r.all[[2]string{name, user}]
	if t == nil || t.Removed || e != nil && !e.Removed {
		return
	}
	r.version++
	r.all[[2]string{name, user}] = &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: name}, User: user, Version: r.version}
}

func (r *rows) sorted() (all []*meshv1.TeamEntry) {
	for _, e := range r.all {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *meshv1.TeamEntry) int { return int(a.Version) - int(b.Version) })
	return all
}

func (r *rows) FollowTeams(_ context.Context, req *meshv1.StoreServiceFollowTeamsRequest) (*meshv1.StoreServiceFollowTeamsResponse, error) {
	if r.between != nil {
		defer r.between()
	}
	have := req.GetHaveVersion()
	resp := &meshv1.StoreServiceFollowTeamsResponse{Version: r.version, NewestVersion: r.version}
	if resp.Anew = have > r.version || have != 0 && r.gone > max(have, req.GetBegunVersion()); resp.Anew {
		have = 0
	}
	for _, e := range r.sorted() {
		if e.Version <= have {
			continue
		}
		if len(resp.Entries) == r.page {
			resp.More, resp.Version = true, resp.Entries[r.page-1].Version
			break
		}
		resp.Entries = append(resp.Entries, e)
	}
	return resp, nil
}

// of is what a list grants a user, as text.
func of(s Set) string {
	var all []string
	for _, g := range s {
		if g != nil {
			p := &identity.Principal{User: "x", Grants: g}
			for _, rule := range p.Rules(identity.Subscribe) {
				if rule.Source != "built-in" {
					all = append(all, rule.Source+"="+rule.Filter)
				}
			}
		}
	}
	return strings.Join(all, " ")
}

// want is the same by the rows.
func (r *rows) want(user string) string {
	var all []string
	for key, e := range r.all {
		if t := r.all[[2]string{key[0]}]; key[1] == user && !e.Removed && t != nil && !t.Removed && len(t.Team.Subscribe) > 0 {
			all = append(all, "team:"+key[0]+"="+t.Team.Subscribe[0])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Whatever changes while a watch follows, however many of them it misses, and however few removed
// rows the store keeps: in the end it has what the store has. Lists of before stay as they were.
func TestAWatchHasWhatTheStoreHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newRows(rapid.IntRange(0, 6).Draw(t, "removed"), rapid.IntRange(1, 5).Draw(t, "page"))
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		user := rapid.SampledFrom([]string{"ann", "bob", "carl", "dora"})
		change := func(most int) {
			for range rapid.IntRange(0, most).Draw(t, "changes") {
				switch n := name.Draw(t, "team"); rapid.IntRange(0, 9).Draw(t, "what") {
				case 0, 1:
					s.put(n, fmt.Sprint("x/", s.version))
				case 2:
					s.put(n)
				case 3:
					s.remove(n, "")
				case 4, 5, 6:
					s.remove(n, user.Draw(t, "user"))
				default:
					s.add(n, user.Draw(t, "user"))
				}
			}
		}
		s.between = func() { change(2) }
		w := NewWatch(s, nil, slog.New(slog.DiscardHandler))
		var list *List
		type old struct {
			list *List
			is   string
		}
		var before []old
		apply := func(l *List) {
			list = l
			before = append(before, old{l, of(l.Of("ann"))})
		}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			change(20)
			if rapid.IntRange(0, 5).Draw(t, "restored") == 0 && list != nil {
				s.all, s.gone = map[[2]string]*meshv1.TeamEntry{}, 0 // from an old backup
				s.version = 1
			}
			if rapid.Bool().Draw(t, "settle") && list != nil {
				settled := *list
				settled.users = list.users.Settled(func(all []place) bool { return len(all) == 0 })
				list = &settled
			}
			if err := w.ask(context.Background(), list, apply); err != nil {
				t.Fatal(err)
			}
		}
		s.between = nil
		if err := w.ask(context.Background(), list, apply); err != nil {
			t.Fatal(err)
		}
		teams := 0
		for key, e := range s.all {
			if key[1] == "" && !e.Removed {
				teams++
			}
		}
		if list.Version() != s.version || list.Len() != teams {
			t.Fatalf("version %d of %d, %d teams of %d", list.Version(), s.version, list.Len(), teams)
		}
		for _, u := range []string{"ann", "bob", "carl", "dora", "eve"} {
			if got, want := of(list.Of(u)), s.want(u); got != want {
				t.Fatalf("%s has %q, want %q", u, got, want)
			}
		}
		for i, b := range before {
			if got := of(b.list.Of("ann")); got != b.is {
				t.Fatalf("list %d has changed: %q, it was %q", i, got, b.is)
			}
		}
	})
}

// Users who were in teams that are gone take no room once that is settled.
func TestUsersOfTeamsThatAreGoneAreForgotten(t *testing.T) {
	s := newRows(10, 100_000)
	w := NewWatch(s, nil, slog.New(slog.DiscardHandler))
	var list *List
	for round := range 5 {
		s.put("a", "x/#")
		for i := range 2000 {
			s.add("a", fmt.Sprint(round, "-", i))
		}
		if err := w.ask(t.Context(), list, func(l *List) { list = l }); err != nil {
			t.Fatal(err)
		}
		s.remove("a", "")
	}
	n := 0
	for range list.users.All() {
		n++
	}
	if n != 2000 {
		t.Errorf("%d users are kept, want the last 2,000", n)
	}
}

// Pages that do not go on end the question, and nothing is taken.
func TestPagesThatNeverEnd(t *testing.T) {
	w := NewWatch(lost{}, nil, slog.New(slog.DiscardHandler))
	if err := w.ask(t.Context(), nil, func(*List) { t.Error("it is taken") }); err == nil {
		t.Error("no error")
	}
}

type lost struct{}

func (lost) FollowTeams(context.Context, *meshv1.StoreServiceFollowTeamsRequest) (*meshv1.StoreServiceFollowTeamsResponse, error) {
	return &meshv1.StoreServiceFollowTeamsResponse{Version: 5, More: true}, nil
}

// Users of the same teams have equal sets, whatever they grant, and a change of one team is another
// set.
func TestEqualSets(t *testing.T) {
	entries := func(filter string) []*meshv1.TeamEntry {
		return []*meshv1.TeamEntry{
			{Team: &pushmeshv1.Team{Name: "a", Subscribe: []string{"x/#"}, Group: []string{"g/x/#"}}, Version: 2, Born: 2},
			{Team: &pushmeshv1.Team{Name: "b", Publish: []string{filter}}, Version: 3, Born: 3},
			{Team: &pushmeshv1.Team{Name: "b"}, User: "ann", Version: 4},
			{Team: &pushmeshv1.Team{Name: "a"}, User: "ann", Version: 5},
			{Team: &pushmeshv1.Team{Name: "a"}, User: "bob", Version: 6},
			{Team: &pushmeshv1.Team{Name: "b"}, User: "bob", Version: 7},
			// in another team of that name
			{Team: &pushmeshv1.Team{Name: "b"}, User: "carl", Version: 1},
		}
	}
	l := NewList(7, entries("y")...)
	if l.Of("ann") != l.Of("bob") || l.Of("ann")[1] == nil || l.Of("ann")[2] != nil || l.Of("carl") != (Set{}) {
		t.Errorf("ann %v, bob %v, carl %v", l.Of("ann"), l.Of("bob"), l.Of("carl"))
	}
	if again, other := NewList(8, entries("y")...), NewList(9, entries("z")...); again.Of("ann") != l.Of("ann") || other.Of("ann") == l.Of("ann") {
		t.Error("sets are not what they grant")
	}
	if (*List)(nil).Of("ann") != (Set{}) {
		t.Error("nothing is known, and something is granted")
	}
}

func TestCheck(t *testing.T) {
	long := strings.Repeat("x/", 100) + "y"
	var big, many []string
	for i := range 50 {
		big = append(big, fmt.Sprint(long, i))
	}
	for i := range identity.MaxRules + 1 {
		many = append(many, fmt.Sprint(i))
	}
	for want, bad := range map[string]*pushmeshv1.Team{
		"is empty":             {},
		"must not contain /":   {Name: "a/b"},
		"nor begin with $":     {Name: "$a"},
		"65 bytes long":        {Name: strings.Repeat("a", 65)},
		"spaces or control":    {Name: "a b"},
		"not UTF-8":            {Name: "\xff"},
		"must be GROUP/FILTER": {Name: "a", Group: []string{"workers"}},
		"8192 together":        {Name: "a", Subscribe: big},
		"more than 64":         {Name: "a", Claim: many},
		"team:a":               {Name: "a", Publish: []string{"x//y"}},
	} {
		if err := Check(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", bad.GetName(), err, want)
		}
	}
	for _, good := range []*pushmeshv1.Team{{Name: "ärzte"}, {Name: "a", Subscribe: []string{"x/{user}/#"}, Group: []string{"g/x/+"}}} {
		if err := Check(good); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}

// What passes is compiled, and grants what it says.
func FuzzCheck(f *testing.F) {
	f.Add("a", "x/#", "g/y")
	f.Add("a b", "{user}", "g")
	f.Add("", "x//y", "\x00")
	f.Fuzz(func(t *testing.T, name, filter, group string) {
		one := &pushmeshv1.Team{Name: name, Subscribe: []string{filter}, Group: []string{group}}
		if Check(one) != nil {
			return
		}
		l := NewList(3, &meshv1.TeamEntry{Team: one, Version: 2, Born: 2}, &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: name}, User: "ann", Version: 3})
		r := identity.Rights{User: "ann", Grants: l.Of("ann")[0]}
		if by, allowed := r.Allows(identity.Subscribe, filter); !strings.Contains(filter, "{user}") && (!allowed || by[0].Source != "team:"+name && by[0].Source != "built-in") {
			t.Fatalf("%q grants %q: %v", name, filter, by)
		}
	})
}
