package principals

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// members are teams, each with what it grants and who is in it.
type members struct {
	list *team.List
	why  *code.Error
}

func (m *members) Fault() *code.Error { return m.why }
func (m *members) List() *team.List   { return m.list }

// are says what teams there are: "NAME FILTER,FILTER USER,USER".
func (m *members) are(teams ...string) {
	var all []*meshv1.TeamEntry
	for _, text := range teams {
		parts := strings.Split(text, " ")
		one := &pushmeshv1.Team{Name: parts[0]}
		for filter := range strings.SplitSeq(parts[1], ",") {
			one.Subscribe = append(one.Subscribe, filter)
			one.Group = append(one.Group, "g/"+filter)
		}
		all = append(all, &meshv1.TeamEntry{Team: one})
		for user := range strings.SplitSeq(parts[2], ",") {
			all = append(all, &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: parts[0]}, User: user})
		}
	}
	m.list = team.NewList(m.list.Version()+1, all...)
}

type teaming struct {
	*subscribers
	*members
	jobs  *walk.Jobs
	cost  *walk.Cost
	table *Table
	why   []string // of subscriptions that ended
}

func (x *teaming) EndIf(c exchange.Conn, shared bool, i int, denied func(id uint32, filter, group string) string) bool {
	return x.subscribers.EndIf(c, shared, i, func(id uint32, filter, group string) string {
		why := denied(id, filter, group)
		if why != "" {
			x.why = append(x.why, why)
		}
		return why
	})
}

func (x *teaming) Refreshed(exchange.Conn, *wirev1.Refreshed) {}

func newTeaming(door Door, n int) *teaming {
	x := &teaming{subscribers: &subscribers{filters: make([][]string, n)}, members: &members{}, jobs: &walk.Jobs{}, cost: &walk.Cost{}}
	x.are()
	x.table = New(Config{Door: door, Teams: x.members}, x, x.jobs, x.cost, now, func(uint32) string { return "" })
	return x
}

// enter has a user come, with subscriptions.
func (x *teaming) enter(t fataler, slot uint32, user string, filters ...string) {
	if _, _, why := x.table.Hello(exchange.Conn{Slot: slot}, &wirev1.Hello{Token: user}, exchange.Plain); why != nil {
		t.Fatal(why)
	}
	x.filters[slot] = append([]string{}, filters...)
}

type fataler interface{ Fatal(...any) }

// run does what is to do, and looks at how much that is at once.
func (x *teaming) run(t testing.TB, most int) {
	for range most {
		before := x.looks
		if x.jobs.Step() == 0 {
			return
		}
		x.cost.Take()
		if x.looks-before > slotsSlice*reviewSlice {
			t.Fatalf("%d subscriptions are looked at in one go", x.looks-before)
		}
	}
}

func may(x *teaming, slot uint32, filter string) bool {
	rights, known := x.table.Rights(slot)
	_, allowed := rights.AllowsValid(identity.Subscribe, filter)
	return known && allowed
}

// Users get what their teams grant when they come and while they are there, and lose it, with the
// subscriptions that nothing else grants. Others, and what their tokens grant, stay. What changes
// while that goes on is found among what was passed.
func TestTeamsReachThoseWhoAreThere(t *testing.T) {
	const n, many = 5 * slotsSlice, 10 * reviewSlice
	x := newTeaming(users{granted(t, "own/#")}, n)
	x.are("chat chat/#,own/1 ann,bob", "news news/# ann")
	for slot := range uint32(n) {
		switch slot % 3 {
		case 0:
			x.enter(t, slot, "ann", "own/1", "chat/1", "news/1", "user/ann", "g:chat/2")
		case 1:
			x.enter(t, slot, "bob", "own/1", "chat/1", "user/bob", "g:chat/2")
		default:
			x.enter(t, slot, "carl", "own/1", "user/carl")
		}
	}
	// ann's
	x.filters[3] = slices.Insert(x.filters[3], 1, slices.Repeat([]string{"chat/+"}, many)...)
	if len(x.table.grants.all) != 4 {
		t.Errorf("%d sets of rules for three kinds of users", len(x.table.grants.all)-1)
	}
	if !may(x, 0, "news/1") || may(x, 1, "news/1") || !may(x, 1, "chat/1") || may(x, 2, "chat/1") || !may(x, 2, "own/1") {
		t.Error("users do not have what their teams grant")
	}
	x.table.TeamsChanged()
	if x.run(t, 1000); x.looks != 0 {
		t.Error("nothing has changed, and subscriptions are looked at")
	}
	x.are("chat chat/#,own/1 ann", "news news/# ann") // bob leaves
	x.table.TeamsChanged()
	x.table.TeamsChanged()
	x.run(t, 1)
	if x.jobs.Len() != 1 || len(x.ended) == 0 || len(x.ended) >= n/3*2 {
		t.Fatalf("%d jobs, %d ended", x.jobs.Len(), len(x.ended))
	}
	x.are("chat chat/#,own/1 carl", "news news/1 ann") // so does ann, and what news grants is less
	x.table.TeamsChanged()
	x.run(t, 100_000)
	for slot, left := range x.filters {
		want := [][]string{{"own/1", "news/1", "user/ann"}, {"own/1", "user/bob"}, {"own/1", "user/carl"}}[slot%3]
		if !slices.Equal(left, want) {
			t.Fatalf("%d has %v, want %v", slot, left, want)
		}
	}
	if s := x.table.Stats(); s.Left != uint64(len(x.ended)) || x.table.moving != nil {
		t.Errorf("%d ended; %+v", len(x.ended), s)
	}
	for _, why := range x.why {
		if !strings.Contains(why, "it was by team:chat; rule default-deny") {
			t.Fatal(why)
		}
	}
	if may(x, 0, "news/2") || may(x, 1, "chat/1") || !may(x, 2, "chat/1") {
		t.Error("users may do what their teams granted before")
	}
	for slot := range uint32(n) {
		x.table.Gone(slot)
	}
	if g := &x.table.grants; len(g.places)+len(g.teamed) != 0 {
		t.Errorf("%d sets of rules are held by nobody", len(g.places)+len(g.teamed))
	}
}

// Who has come, and waits for its session, has what the teams of its user grant when it gets it.
func TestTeamsReachThoseWhoWaitForTheirSession(t *testing.T) {
	x := newTeaming(users{}, 2)
	x.are("chat chat/# ann")
	for slot, user := range []string{"ann", "bob"} {
		x.enter(t, uint32(slot), user)
		x.filters[slot] = nil // it is not open yet
	}
	x.are("chat chat/# bob")
	x.table.TeamsChanged()
	x.run(t, 100)
	for slot := range x.filters {
		x.filters[slot] = []string{}
	}
	if may(x, 0, "chat/1") {
		t.Error("who has left the team may do what that grants")
	}
	if !may(x, 1, "chat/1") {
		t.Error("who has come to the team may not do what that grants")
	}
}

// While it is not known who is in which team nobody comes in; those who are there stay.
func TestNobodyComesInWithoutTeams(t *testing.T) {
	x := newTeaming(users{}, 2)
	x.enter(t, 0, "ann")
	x.members.why = code.New(wirev1.Code_CODE_UNAVAILABLE, "not known")
	if _, _, why := x.table.Hello(exchange.Conn{Slot: 1}, &wirev1.Hello{Token: "bob"}, exchange.Plain); code.Of(why) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("%v", why)
	}
	x.table.TeamsChanged()
	if x.run(t, 100); x.table.User(0) != "ann" {
		t.Error("who is there is there no more")
	}
}

// Whatever tokens, teams and time bring, each connection may do what its token and the teams of its
// user grant in the end, has no subscription that they do not, and every place is held by as many
// as have it.
func TestRightsAreTheUnion(t *testing.T) {
	grants := []*identity.Grants{nil, granted(t, "a/#"), granted(t, "b/#")}
	filters := []string{"a/1", "b/1", "c/1", "d/1", "g:c/2", "g:d/2"}
	rapid.Check(t, func(t *rapid.T) {
		const n = 6
		door := &shows{}
		x := newTeaming(door, n)
		own := make([]int, n)
		who := []string{"ann", "bob", "carl"}
		var teams map[string][2]string // filter, users
		set := func() {
			teams = map[string][2]string{}
			var all []string
			for _, name := range []string{"t1", "t2"} {
				in := rapid.SampledFrom([]string{"ann", "bob", "ann,bob", "carl", "nobody"}).Draw(t, "in")
				filter := rapid.SampledFrom([]string{"c/#", "d/#", "a/1"}).Draw(t, "filter")
				teams[name] = [2]string{filter, in}
				all = append(all, fmt.Sprint(name, " ", filter, " ", in))
			}
			x.are(all...)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			slot := rapid.IntRange(0, n-1).Draw(t, "slot")
			conn := exchange.Conn{Slot: uint32(slot)}
			user := who[slot%3]
			g := rapid.IntRange(0, len(grants)-1).Draw(t, "grants")
			door.who = &identity.Principal{User: user, Grants: grants[g]}
			switch {
			case rapid.IntRange(0, 3).Draw(t, "change") == 0:
				set()
				x.table.TeamsChanged()
			case rapid.Bool().Draw(t, "step"):
				x.jobs.Step()
				x.cost.Take()
			case x.filters[slot] == nil:
				x.enter(t, uint32(slot), user)
				own[slot] = g
				for _, f := range filters { // as Subscribe does
					group, filter, is := strings.Cut(f, ":")
					if !is {
						group, filter = "", f
					}
					if rights, _ := x.table.Rights(uint32(slot)); x.table.allows(conn, rights, 0, filter, group) {
						x.filters[slot] = append(x.filters[slot], f)
					}
				}
			case rapid.Bool().Draw(t, "refresh"):
				x.table.Refresh(conn, &wirev1.RefreshToken{Id: 1, Token: "t"})
				own[slot] = g
			default:
				x.filters[slot] = nil
				x.table.Gone(uint32(slot))
			}
		}
		for i := 0; x.jobs.Step() > 0; i++ {
			if x.cost.Take(); i > 10_000 {
				t.Fatal("it does not end")
			}
		}
		held := 0
		for slot, has := range x.filters {
			if has == nil {
				continue
			}
			var want []*identity.Grants
			for _, name := range []string{"t1", "t2"} {
				if tm, is := teams[name]; is && slices.Contains(strings.Split(tm[1], ","), who[slot%3]) {
					one, err := team.Grants(&pushmeshv1.Team{Name: name, Subscribe: []string{tm[0]}, Group: []string{"g/" + tm[0]}})
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, one)
				}
			}
			oracle := identity.Rights{User: who[slot%3], Grants: grants[own[slot]].With(want...)}
			rights, _ := x.table.Rights(uint32(slot))
			for _, f := range filters {
				group, filter, is := strings.Cut(f, ":")
				if !is {
					group, filter = "", f
				}
				may := x.table.allows(exchange.Conn{Slot: uint32(slot)}, oracle, 0, filter, group)
				if got := x.table.allows(exchange.Conn{Slot: uint32(slot)}, rights, 0, filter, group); got != may {
					t.Fatalf("slot %d, %s: %v, want %v", slot, f, got, may)
				}
				if slices.Contains(has, f) && !may {
					t.Fatalf("slot %d keeps %s", slot, f)
				}
			}
			if place := x.table.of(uint32(slot)).grants; place != 0 {
				held++
			}
		}
		for _, h := range x.table.grants.all {
			held -= h.users
		}
		if held != 0 {
			t.Fatalf("places have %d users too few", held)
		}
	})
}

// BenchmarkMove looks at 100,000 connections, of whom nobody's teams have changed, while 100,000
// others are in teams.
func BenchmarkMove(b *testing.B) {
	const n = 100_000
	x := newTeaming(users{}, n)
	all := []*meshv1.TeamEntry{{Team: &pushmeshv1.Team{Name: "t", Subscribe: []string{"x/#"}}}}
	for i := range uint32(n) {
		x.enter(b, i, fmt.Sprint("user-", i))
		all = append(all, &meshv1.TeamEntry{Team: &pushmeshv1.Team{Name: "t"}, User: fmt.Sprint("other-", i)})
	}
	x.list = team.NewList(2, all...)
	for b.Loop() {
		x.table.TeamsChanged()
		for x.jobs.Step() > 0 {
			x.cost.Take()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/connection")
}
