package backendtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// newcomer attaches a session of a user from an address, under a quota.
func newcomer(t *testing.T, b backend.Backend, user, name, origin string, q backend.Quota, now uint64) error {
	t.Helper()
	resp, err := b.AttachSession(within(t), &meshv1.AttachSessionRequest{User: user, Name: name, EdgeId: "e1", Origin: origin, TtlS: 60}, q, now)
	if err == nil && resp.GetGeneration() == 0 {
		t.Errorf("%s/%s was attached under no generation", user, name)
	}
	return err
}

// wantBound checks that err is about a bound; "": that there is none.
func wantBound(t *testing.T, err error, want backend.Bound) {
	t.Helper()
	var many *backend.TooManySessions
	if errors.As(err, &many); want == "" && err != nil || want != "" && (many == nil || many.Bound != want) {
		t.Errorf("%v, want the bound %q", err, want)
	}
}

func wantSessions(t *testing.T, b backend.Backend, want int) {
	t.Helper()
	n, err := b.CountSessions(within(t))
	need(t, err)
	if n != want {
		t.Errorf("%d sessions are counted, want %d", n, want)
	}
}

func testSessionQuota(t *testing.T, db Database) {
	b := db(t)
	q := backend.Quota{User: 2, Address: 3, All: 6}
	wantSessions(t, b, 0)
	wantBound(t, newcomer(t, b, "ann", "1", "192.0.2.1", q, begin), "")
	wantBound(t, newcomer(t, b, "ann", "2", "192.0.2.1", q, begin), "")
	wantBound(t, newcomer(t, b, "ann", "3", "192.0.2.1", q, begin), backend.BoundUser)
	// What was refused is not there, and takes nobody's place.
	if s, err := b.GetSession(within(t), "ann", "3", begin); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a session that was refused: %v, %v", s, err)
	}
	wantBound(t, newcomer(t, b, "bob", "1", "192.0.2.1", q, begin), "")
	wantBound(t, newcomer(t, b, "bob", "2", "192.0.2.1", q, begin), backend.BoundAddress)
	wantBound(t, newcomer(t, b, "bob", "2", "192.0.2.2", q, begin), "")
	// One that exists is attached whatever the quota, from wherever, and stays its creator's.
	wantBound(t, newcomer(t, b, "bob", "2", "192.0.2.1", backend.Quota{User: 1, Address: 1, All: 1}, begin), "")
	wantBound(t, newcomer(t, b, "bob", "2", "192.0.2.3", q, begin), "")
	// Those without an address have no bound of it, and groups are no user's.
	for i := range 2 {
		wantBound(t, newcomer(t, b, backend.GroupUser, fmt.Sprint(i), "", backend.Quota{User: 1, Address: 1}, begin), "")
	}
	wantSessions(t, b, 6)
	wantBound(t, newcomer(t, b, "cid", "1", "192.0.2.9", q, begin), backend.BoundAll)
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	wantSessions(t, b, 6)
	// Each bound is free again where one of its sessions was deleted, or ended.
	remove(t, b, "ann", "1")
	wantBound(t, newcomer(t, b, "cid", "1", "192.0.2.1", q, begin), "")
	wantBound(t, newcomer(t, b, "cid", "2", "192.0.2.1", backend.Quota{Address: 3}, begin), backend.BoundAddress)
	n, err := b.DetachEdge(within(t), "e1", after(time.Second), 100)
	need(t, err)
	over, err := b.ExpireSessions(within(t), after(time.Hour), 10)
	need(t, err)
	if n != 6 || len(over) != 6 {
		t.Fatalf("%d detached, %v expired; want 6", n, over)
	}
	wantSessions(t, b, 0)
	for i := range 3 {
		wantBound(t, newcomer(t, b, "dan", fmt.Sprint(i), "192.0.2.1", backend.Quota{Address: 3, All: 3}, after(time.Hour)), "")
	}
	wantBound(t, newcomer(t, b, "dan", "3", "192.0.2.1", backend.Quota{Address: 3}, after(time.Hour)), backend.BoundAddress)
}

// A session whose time is over counts for whoever creates it anew.
func testSessionQuotaReborn(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	q := backend.Quota{Address: 1}
	wantBound(t, newcomer(t, b, "u", "s", "192.0.2.1", q, begin), "")
	g := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e1", TtlS: 60}, begin).Generation
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, AddFilters: []string{"x"}, Detach: true}), ok)
	wantBound(t, newcomer(t, b, "u", "s", "2001:db8::/64", q, after(time.Hour)), "")
	wantBound(t, newcomer(t, b, "u", "t", "192.0.2.1", q, after(time.Hour)), "")
	wantBound(t, newcomer(t, b, "u", "w", "2001:db8::/64", q, after(time.Hour)), backend.BoundAddress)
	wantSessions(t, b, 2)
	s, err := b.GetSession(within(t), "u", "s", after(time.Hour))
	need(t, err)
	if s.GetOrigin() != "2001:db8::/64" || s.GetCreatedAt() < after(time.Hour) {
		t.Errorf("the session is %v", s)
	}
}

// An edge that was not heard of for a while lives after all: its clients were connected all the
// time, and one that has not subscribed yet keeps its session.
func testSilentEdge(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	g := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e1", TtlS: 3600}, begin).Generation
	_, err := b.DetachEdge(within(t), "e1", after(time.Minute), 100)
	need(t, err)
	expire := func(at time.Duration, want int) {
		t.Helper()
		over, err := b.ExpireSessions(within(t), after(at), 10)
		need(t, err)
		if len(over) != want {
			t.Errorf("%v expired after %s, want %d", over, at, want)
		}
	}
	w := &meshv1.SessionWrite{User: "u", Name: "s", Generation: g}
	expire(2*time.Minute, 0)
	wantCodes(t, write(t, b, after(2*time.Minute), w), ok) // begins the TTL anew
	expire(time.Hour+90*time.Second, 0)
	w.AddFilters = []string{"room/1"}
	wantCodes(t, write(t, b, after(time.Hour+90*time.Second), w), ok)
	// One that is empty still, and whose client leaves, ends soon after all.
	g = attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "left", EdgeId: "e1", TtlS: 3600}, after(time.Hour+2*time.Minute)).Generation
	_, err = b.DetachEdge(within(t), "e1", after(time.Hour+3*time.Minute), 100)
	need(t, err)
	wantCodes(t, write(t, b, after(time.Hour+3*time.Minute), &meshv1.SessionWrite{User: "u", Name: "left", Generation: g, Detach: true}), ok)
	expire(time.Hour+5*time.Minute, 1)
}

// What never had a filter or a position ends soon after its connection, and nothing else does.
func testEmptySessions(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	begun := func(name string) uint64 {
		return attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: name, EdgeId: "e1", TtlS: 3600}, begin).Generation
	}
	empty, filter, cursor := begun("empty"), begun("filter"), begun("cursor")
	begun("lost")
	short := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "short", EdgeId: "e1", TtlS: 5}, begin).Generation
	of := func(name string, g uint64) *meshv1.SessionWrite {
		return &meshv1.SessionWrite{User: "u", Name: name, Generation: g}
	}
	f, c := of("filter", filter), of("cursor", cursor)
	f.AddFilters, c.Cursors = []string{"x"}, []*meshv1.SessionCursor{{Topic: "x", Epoch: 1, Floor: 1}}
	wantCodes(t, write(t, b, begin, f), ok)
	wantCodes(t, write(t, b, begin, c), ok)
	f = of("filter", filter) // it has nothing any more, and had
	f.RemoveFilters = []string{"x"}
	wantCodes(t, write(t, b, begin, f), ok)
	for name, g := range map[string]uint64{"empty": empty, "filter": filter, "cursor": cursor, "short": short} {
		w := of(name, g)
		w.Detach = true
		wantCodes(t, write(t, b, begin, w), ok)
	}
	_, err := b.DetachEdge(within(t), "e1", after(time.Microsecond), 100)
	need(t, err)
	for name, want := range map[string]time.Duration{
		"empty": backend.EmptyTTL * time.Microsecond, "lost": time.Hour + time.Microsecond, "short": 5 * time.Second,
		"filter": time.Hour, "cursor": time.Hour,
	} {
		s, err := b.GetSession(within(t), "u", name, begin+1)
		need(t, err)
		if s.GetExpiresAt() != after(want) {
			t.Errorf("%s ends after %s, want %s", name, time.Duration(s.GetExpiresAt()-begin)*time.Microsecond, want)
		}
	}
	// One that comes back while it is there goes on.
	if r := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "empty", EdgeId: "e2"}, after(30*time.Second)); !r.GetResumed() {
		t.Error("an empty session was gone before its time")
	}
}

// Former is a backend whose database a store of the former version can be said to have written to,
// which knows nothing of whether sessions are used.
type Former interface {
	// ForgetUse has all sessions look as if they had never had a filter or cursor.
	ForgetUse(t *testing.T)
}

// A session that a store of the former version wrote filters of keeps its whole time.
func testSessionsOfAFormerStore(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	all := map[string]*meshv1.SessionWrite{}
	for _, name := range []string{"filter", "gone", "none", "other"} {
		g := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: name, EdgeId: "e1", TtlS: 3600}, begin).Generation
		all[name] = &meshv1.SessionWrite{User: "u", Name: name, Generation: g}
	}
	for _, name := range []string{"filter", "gone"} {
		w := &meshv1.SessionWrite{User: "u", Name: name, Generation: all[name].GetGeneration(), AddFilters: []string{"x"}}
		wantCodes(t, write(t, b, begin, w), ok)
	}
	b.(Former).ForgetUse(t)
	all["gone"].RemoveFilters = []string{"x"} // the session had it
	var writes []*meshv1.SessionWrite
	for _, w := range all {
		w.Detach = true
		writes = append(writes, w)
	}
	all["other"].Generation++
	for i, c := range write(t, b, begin, writes...) {
		if want := map[bool]wirev1.Code{true: taken, false: ok}[writes[i].GetName() == "other"]; c != want {
			t.Errorf("%s is answered with %v, want %v", writes[i].GetName(), c, want)
		}
	}
	for name, want := range map[string]time.Duration{"filter": time.Hour, "gone": time.Hour, "none": backend.EmptyTTL * time.Microsecond} {
		s, err := b.GetSession(within(t), "u", name, begin+1)
		need(t, err)
		if s.GetExpiresAt() != after(want) {
			t.Errorf("%s ends after %s, want %s", name, time.Duration(s.GetExpiresAt()-begin)*time.Microsecond, want)
		}
	}
	// It is known from then on, also where the next holder finds no filter.
	g := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "gone", EdgeId: "e1", TtlS: 3600}, after(time.Minute)).Generation
	wantCodes(t, write(t, b, after(time.Minute), &meshv1.SessionWrite{User: "u", Name: "gone", Generation: g, Detach: true}), ok)
	s, err := b.GetSession(within(t), "u", "gone", after(time.Minute))
	need(t, err)
	if s.GetExpiresAt() != after(time.Minute+time.Hour) {
		t.Errorf("detached again, it ends at %d, want %d", s.GetExpiresAt(), after(time.Minute+time.Hour))
	}
}

func testSessionSizes(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	large := &meshv1.SessionWrite{User: "u", Name: "large", AddFilters: []string{"room/#", "x"}}
	for i := range 50 {
		acked := []uint64{uint64(10 * i), uint64(10*i + 1)}
		large.Cursors = append(large.Cursors, &meshv1.SessionCursor{Topic: fmt.Sprint("room/", i), Epoch: 1, Floor: 1, Acked: acked})
	}
	small := &meshv1.SessionWrite{User: "u", Name: "small", AddFilters: []string{"x"}, Cursors: []*meshv1.SessionCursor{{Topic: "x", Epoch: 1, Floor: 1}}}
	for _, w := range []*meshv1.SessionWrite{large, small, {User: "u", Name: "none"}} {
		w.Generation = attach(t, b, &meshv1.AttachSessionRequest{User: w.GetUser(), Name: w.GetName(), EdgeId: "e", Origin: "192.0.2.7"}, begin).Generation
		wantCodes(t, write(t, b, begin, w), ok)
	}
	sizes := func() map[string]*pushmeshv1.Session {
		page, _, err := b.ListSessions(within(t), backend.SessionQuery{Limit: 10, Sizes: true}, begin)
		need(t, err)
		all := map[string]*pushmeshv1.Session{}
		for _, s := range page {
			all[s.GetName()] = s
		}
		return all
	}
	check := func(when string, name string, filters, cursors, least, most uint64) {
		t.Helper()
		s := sizes()[name]
		if s.GetFilterCount() != filters || s.GetCursorCount() != cursors || s.GetKeptBytes() < least || s.GetKeptBytes() > most ||
			s.GetOrigin() != "192.0.2.7" || s.GetCreatedAt() < begin {
			t.Errorf("%s: %s is %v, want %d filters, %d cursors and %d to %d bytes", when, name, s, filters, cursors, least, most)
		}
	}
	for _, when := range []string{"written", "folded", "written again", "folded again"} {
		if strings.HasPrefix(when, "folded") {
			need(t, b.FoldCursors(within(t), backend.FoldAll))
		} else {
			wantCodes(t, write(t, b, begin, large), ok) // the same positions take no more
		}
		check(when, "large", 2, 50, 50*10, 50*100)
		check(when, "small", 1, 1, 3, 120)
		check(when, "none", 0, 0, 0, 0)
	}
	gone := &meshv1.SessionWrite{User: "u", Name: "large", Generation: large.GetGeneration(), RemoveTopics: []string{"room/0", "room/1"}}
	wantCodes(t, write(t, b, begin, gone), ok)
	check("removed", "large", 2, 48, 48*10, 48*100)
	page, _, err := b.ListSessions(within(t), backend.SessionQuery{Limit: 10}, begin)
	need(t, err)
	for _, s := range page {
		if s.GetFilterCount()+s.GetCursorCount()+s.GetKeptBytes() != 0 {
			t.Errorf("sizes without being asked for: %v", s)
		}
	}
}
