package backendtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/team"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func putTeam(t *testing.T, b backend.Backend, name string, filters ...string) uint64 {
	t.Helper()
	version, _, err := b.PutTeam(within(t), &pushmeshv1.Team{Name: name, Subscribe: filters, Publish: []string{"p/" + name}})
	need(t, err)
	return version
}

func addMembers(t *testing.T, b backend.Backend, name string, users ...string) uint64 {
	t.Helper()
	n, version, err := b.AddMembers(within(t), name, users)
	if need(t, err); n != len(users) {
		t.Errorf("%d of %d are added to %s", n, len(users), name)
	}
	return version
}

func show(all []*meshv1.TeamEntry) string {
	var out []string
	for _, e := range all {
		name := e.GetTeam().GetName() + ":" + e.GetUser()
		if e.GetRemoved() {
			name += " removed"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func followed(t *testing.T, b backend.Backend, have, begun uint64, limit int) (backend.TeamsPage, string) {
	t.Helper()
	page, err := b.FollowTeams(within(t), have, begun, limit)
	need(t, err)
	for i := 1; i < len(page.All); i++ {
		if page.All[i-1].Version >= page.All[i].Version {
			t.Errorf("not in the order of versions: %v", page.All)
		}
	}
	return page, show(page.All)
}

func found(t *testing.T, b backend.Backend, name, user, after string, limit int) string {
	t.Helper()
	all, err := b.FindTeams(within(t), name, user, after, limit)
	need(t, err)
	return show(all)
}

func testTeams(t *testing.T, db Database) {
	b := db(t)
	empty, _ := followed(t, b, 0, 0, 10)
	if empty.Version == 0 || empty.Newest != empty.Version || empty.More || empty.Anew || len(empty.All) != 0 {
		t.Fatalf("a database without teams: %+v", empty)
	}
	a := putTeam(t, b, "a", "x/#", "y")
	addMembers(t, b, "a", "ann", "bob")
	putTeam(t, b, "b")
	last := addMembers(t, b, "b", "ann")
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)

	first, names := followed(t, b, empty.Version, 0, 3)
	if names != "a:, a:ann, a:bob" || !first.More || first.Newest != last {
		t.Errorf("the first page: %s, %+v", names, first)
	}
	if e := first.All[0]; e.Version != a || e.Born != a || e.Team.Version != a || strings.Join(e.Team.Subscribe, " ") != "x/# y" || e.Team.Publish[0] != "p/a" {
		t.Errorf("the team: %v", e)
	}
	rest, names := followed(t, b, first.Version, 0, 3)
	if names != "b:, b:ann" || rest.More || rest.Version != last {
		t.Errorf("the last page: %s, %+v", names, rest)
	}
	if same, names := followed(t, b, last, 0, 3); names != "" || same.Version != last || same.Newest != last {
		t.Errorf("nothing has changed: %s, %+v", names, same)
	}
	if beyond, names := followed(t, b, last+7, 0, 9); names != "a:, a:ann, a:bob, b:, b:ann" || !beyond.Anew || beyond.Version != last {
		t.Errorf("a version that never was: %s, %+v", names, beyond)
	}
	for what, got := range map[string][2]string{
		"teams":             {found(t, b, "", "", "", 9), "a:, b:"},
		"one of them":       {found(t, b, "", "", "", 1), "a:"},
		"after it":          {found(t, b, "", "", "a", 9), "b:"},
		"members":           {found(t, b, "a", "", "", 9), "a:ann, a:bob"},
		"after ann":         {found(t, b, "a", "", "ann", 9), "a:bob"},
		"of a user":         {found(t, b, "", "ann", "", 9), "a:ann, b:ann"},
		"after the first":   {found(t, b, "", "ann", "a", 9), "b:ann"},
		"of nobody we know": {found(t, b, "", "eve", "", 9), ""},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %s, want %s", what, got[0], got[1])
		}
	}

	// What changes nothing has no version.
	if n, version, err := b.AddMembers(within(t), "a", []string{"ann"}); n != 0 || version != last || err != nil {
		t.Errorf("added again: %d, version %d of %d, %v", n, version, last, err)
	}
	if n, version, err := b.RemoveMembers(within(t), "b", []string{"bob"}); n != 0 || version != last || err != nil {
		t.Errorf("who is none is removed: %d, version %d of %d, %v", n, version, last, err)
	}
	// A team that is put again is the same, and its members stay.
	if _, before, err := b.PutTeam(within(t), &pushmeshv1.Team{Name: "a", Subscribe: []string{"z"}}); err != nil || before.GetName() != "a" || before.GetVersion() != a || len(before.GetSubscribe()) != 2 {
		t.Errorf("before it is put again there is %v, %v", before, err)
	}
	n, _, err := b.RemoveMembers(within(t), "a", []string{"ann", "carl"})
	if need(t, err); n != 1 {
		t.Errorf("%d are removed", n)
	}
	changed, names := followed(t, b, last, 0, 9)
	if names != "a:, a:ann removed" || changed.All[0].Born != a || changed.All[0].Team.Subscribe[0] != "z" {
		t.Errorf("changes: %s, %v", names, changed.All)
	}
	if got := found(t, b, "a", "", "", 9); got != "a:bob" {
		t.Errorf("members of a: %s", got)
	}
	addMembers(t, b, "a", "ann")
	if _, names := followed(t, b, changed.Version, 0, 9); names != "a:ann" {
		t.Errorf("ann is back: %s", names)
	}

	// With a team its members go, and one of the same name is another one.
	gone, before, err := b.DeleteTeam(within(t), "a")
	if need(t, err); before.GetName() != "a" || before.GetSubscribe()[0] != "z" {
		t.Errorf("deleted is %v", before)
	}
	if page, names := followed(t, b, gone-1, 0, 9); names != "a: removed" || page.Version != gone {
		t.Errorf("deleted: %s, %+v", names, page)
	}
	if all, of := found(t, b, "a", "", "", 9), found(t, b, "", "ann", "", 9); all != "" || of != "b:ann" {
		t.Errorf("after a is deleted it has %s, ann is in %s", all, of)
	}
	again, before, err := b.PutTeam(within(t), &pushmeshv1.Team{Name: "a", Subscribe: []string{"x"}})
	if need(t, err); before != nil {
		t.Errorf("before it is made anew there is %v", before)
	}
	if page, names := followed(t, b, gone, 0, 9); names != "a:" || page.All[0].Born != again {
		t.Errorf("made anew: %s, %v", names, page.All)
	}
	for what, err := range map[string]error{
		"delete": third(b.DeleteTeam(within(t), "c")),
		"add":    third(b.AddMembers(within(t), "c", []string{"ann"})),
		"remove": third(b.RemoveMembers(within(t), "c", []string{"ann"})),
	} {
		if !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%s where there is no team: %v", what, err)
		}
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }

// A user is in so many teams at most, and where one of those who are named would be in more, none
// is added.
func testTeamsOfAUser(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	for i := range team.MaxOfUser + 1 {
		name := fmt.Sprint("t", i)
		putTeam(t, b, name)
		if i < team.MaxOfUser {
			addMembers(t, b, name, "ann")
		}
	}
	last := fmt.Sprint("t", team.MaxOfUser)
	if _, _, err := b.AddMembers(within(t), last, []string{"aaron", "ann", "bob"}); code.Of(err) != wirev1.Code_CODE_OVERLOADED || !strings.Contains(err.Error(), "user ann") {
		t.Errorf("one team too many: %v", err)
	}
	if got := found(t, b, last, "", "", 9); got != "" {
		t.Errorf("%s are added all the same", got)
	}
	for teams, want := range map[int]bool{team.MaxTeams: true, team.MaxTeams + 1: false} {
		if err := backend.RoomForTeams(teams, 0); (err == nil) != want {
			t.Errorf("%d teams: %v", teams, err)
		}
	}
	for n, want := range map[int]bool{team.MaxMemberships: true, team.MaxMemberships + 1: false} {
		if err := backend.RoomForTeams(0, n); (err == nil) != want {
			t.Errorf("%d memberships: %v", n, err)
		}
	}
}

// Removed rows are kept up to a number; who has missed more is sent all anew, and so is who is in
// the midst of that.
func testRemovedTeamsAreForgotten(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	putTeam(t, b, "a", "x")
	putTeam(t, b, "b", "x")
	begun := addMembers(t, b, "b", "ann")
	before := begun
	for batch := range backend.MaxRemovedTeams/1000 + 1 {
		var users []string
		for i := range 1000 {
			users = append(users, fmt.Sprintf("u%02d-%03d", batch, i))
		}
		before = addMembers(t, b, "a", users...)
		n, _, err := b.RemoveMembers(within(t), "a", users)
		if need(t, err); n != 1000 {
			t.Fatalf("%d are removed", n)
		}
	}
	if page, names := followed(t, b, before, 0, 2); page.Anew || names != "a:u10-000 removed, a:u10-001 removed" {
		t.Errorf("who has missed little: %s, anew %v", names, page.Anew)
	}
	if page, names := followed(t, b, begun, 0, 3); !page.Anew || !strings.HasPrefix(names, "a:, b:, b:ann") {
		t.Errorf("who has missed more than is kept: %s, anew %v", names, page.Anew)
	}
	if page, _ := followed(t, b, begun-1, begun, 3); !page.Anew {
		t.Error("who began before that goes on")
	}
	if page, names := followed(t, b, begun-1, before, 2); page.Anew || !strings.HasPrefix(names, "b:ann") {
		t.Errorf("who began afterwards does not go on: %s, %+v", names, page)
	}
	if page, _ := followed(t, b, 0, 0, 3); page.Anew {
		t.Error("who has nothing has nothing that does not count")
	}
	need(t, b.NewEpoch(within(t), uint64(time.Now().Add(time.Hour).UnixMicro())))
	if _, _, err := b.RemoveMembers(within(t), "b", []string{"ann"}); err != nil {
		// another row is forgotten
		t.Fatal(err)
	}
	if page, _ := followed(t, b, before, 0, 3); !page.Anew {
		t.Error("who has a version from before a new epoch goes on")
	}
}

// An edge may have versions of teams and revocations that a database which was restored does not
// know. Other changes come to have as many: the edge is told of them all the same, and that what it
// has of teams does not count.
func testFollowedIntoANewEpoch(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	putTeam(t, b, "a", "x")
	const lost = 50
	teams := addMembers(t, b, "a", "ann") + lost
	now := uint64(time.Now().UnixMicro())
	one := func(user string) uint64 {
		kept, err := b.Revoke(within(t), &pushmeshv1.Revocation{User: user, Until: now + 3600_000_000}, now)
		need(t, err)
		return kept.GetVersion()
	}
	revocations := one("ann") + lost
	need(t, b.NewEpoch(within(t), uint64(time.Now().Add(time.Hour).UnixMicro())))
	var users []string
	for i := range 2 * lost {
		users = append(users, fmt.Sprintf("u%03d", i))
		one(users[i])
	}
	addMembers(t, b, "a", users...)
	for _, have := range []uint64{teams, teams - lost} {
		if page, names := followed(t, b, have, 0, 3); !page.Anew || names != "a:, a:ann, a:u000" {
			t.Errorf("who has version %d of teams is sent %s, anew %v", have, names, page.Anew)
		}
	}
	page, names := followed(t, b, 0, 0, 3)
	if rest, more := followed(t, b, page.Version, page.Newest, 999); page.Anew || rest.Anew || names != "a:, a:ann, a:u000" || !strings.HasSuffix(more, "a:u099") {
		t.Errorf("who has nothing is sent %s, then anew %v", names, rest.Anew)
	}
	revoked, err := b.ListRevocations(within(t), revocations, 999, now)
	if need(t, err); len(revoked.All) != len(users) && !revoked.Anew {
		t.Errorf("%d of %d new revocations are told", len(revoked.All), len(users))
	}
}

// Those who follow page by page, while others change teams, have in the end what is kept.
func testTeamsFollowed(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	const writers, each = 4, 30
	var changing sync.WaitGroup
	for w := range writers {
		changing.Go(func() {
			for i := range each {
				name, users := fmt.Sprint("t", (w+i)%3), []string{fmt.Sprint("u", i%5), fmt.Sprint("u", w+5)}
				var err error
				switch i % 5 {
				case 0:
					_, _, err = b.PutTeam(within(t), &pushmeshv1.Team{Name: name, Subscribe: []string{fmt.Sprint("x/", w, i)}})
				case 1, 2:
					_, _, err = b.AddMembers(within(t), name, users)
				case 3:
					_, _, err = b.RemoveMembers(within(t), name, users[:1])
				default:
					if i%10 == 9 {
						_, _, err = b.DeleteTeam(within(t), name)
					}
				}
				if err != nil && !errors.Is(err, backend.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { changing.Wait(); close(done) }()
	has := map[string]*meshv1.TeamEntry{}
	var have uint64
	follow := func() {
		for more := true; more; {
			page, err := b.FollowTeams(within(t), have, 0, 3)
			need(t, err)
			for _, e := range page.All {
				has[e.Team.Name+"/"+e.User] = e
			}
			if page.Version < have || page.Anew {
				t.Fatalf("version %d after %d", page.Version, have)
			}
			have, more = page.Version, page.More
		}
	}
	for under := true; under; {
		select {
		case <-done:
			under = false
		default:
		}
		follow()
	}
	all, err := b.FollowTeams(within(t), 0, 0, 999)
	need(t, err)
	live := func(e *meshv1.TeamEntry) bool {
		t := has[e.Team.Name+"/"]
		return !e.Removed && t != nil && !t.Removed && t.Born <= e.Version
	}
	n := 0
	for _, e := range has {
		if live(e) {
			n++
		}
	}
	for _, e := range all.All {
		if got := has[e.Team.Name+"/"+e.User]; got == nil || got.Version != e.Version || got.Removed != e.Removed {
			t.Errorf("%v is followed as %v", e, got)
		}
		if live(e) {
			n--
		}
	}
	if n != 0 || all.Version != have {
		t.Errorf("%d live ones more are followed than kept, version %d of %d", n, have, all.Version)
	}
}
