package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func attach(t *testing.T, b backend.Backend, req *meshv1.AttachSessionRequest, now uint64) *meshv1.AttachSessionResponse {
	t.Helper()
	resp, err := b.AttachSession(within(t), req, backend.Quota{}, now)
	need(t, err)
	return resp
}

// remove deletes a session.
func remove(t *testing.T, b backend.Backend, user, name string) {
	t.Helper()
	_, _, err := b.DeleteSession(within(t), user, name)
	need(t, err)
}

func from(edge string, conn uint64) *meshv1.AttachSessionRequest {
	return &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: edge, ConnectionId: conn}
}

func write(t *testing.T, b backend.Backend, now uint64, writes ...*meshv1.SessionWrite) []wirev1.Code {
	t.Helper()
	codes, err := b.WriteCursors(within(t), writes, now)
	need(t, err)
	if len(codes) != len(writes) {
		t.Fatalf("%d codes for %d writes", len(codes), len(writes))
	}
	return codes
}

const (
	ok       = wirev1.Code_CODE_OK
	taken    = wirev1.Code_CODE_SESSION_TAKEN_OVER
	notFound = wirev1.Code_CODE_NOT_FOUND
)

func wantCodes(t *testing.T, got []wirev1.Code, want ...wirev1.Code) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
}

func testSessionGenerations(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	if r := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "s", Peek: true}, begin); r.Generation != 0 || r.Resumed || r.PreviousEdge != "" {
		t.Errorf("peek at nothing: %v", r)
	}
	first := attach(t, b, from("e1", 11), begin)
	if first.Resumed || first.Generation < begin || first.PreviousEdge != "" {
		t.Errorf("first attach: %v", first)
	}
	second := attach(t, b, from("e2", 22), begin+1)
	if !second.Resumed || second.Generation <= first.Generation || second.PreviousEdge != "e1" || second.PreviousConnectionId != 11 {
		t.Errorf("second attach: %v after %v", second, first)
	}
	peek := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "s", Peek: true}, begin+2)
	if !peek.Resumed || peek.Generation != second.Generation || peek.PreviousEdge != "e2" || peek.PreviousConnectionId != 22 {
		t.Errorf("peek: %v", peek)
	}
	cursor := func(gen, floor uint64) *meshv1.SessionWrite {
		return &meshv1.SessionWrite{User: "u", Name: "s", Generation: gen, Cursors: []*meshv1.SessionCursor{{Topic: "x", Epoch: 1, Floor: floor}}}
	}
	other := &meshv1.SessionWrite{User: "u", Name: "none", Generation: 1}
	wantCodes(t, write(t, b, begin+3, cursor(second.Generation, 5), cursor(first.Generation, 99), other), ok, taken, notFound)
	third := attach(t, b, from("e1", 12), begin+4)
	if len(third.Cursors) != 1 || third.Cursors[0].Floor != 5 {
		t.Errorf("cursors %v, want floor 5", third.Cursors)
	}
	if edge, g, err := b.DeleteSession(within(t), "u", "s"); err != nil || edge != "e1" || g != third.Generation {
		t.Errorf("deleted generation %d of %q, %v; want %d of e1", g, edge, err, third.Generation)
	}
	if _, _, err := b.DeleteSession(within(t), "u", "s"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("second delete: %v", err)
	}
	wantCodes(t, write(t, b, begin+5, cursor(third.Generation, 6)), notFound)
	again := attach(t, b, from("e1", 13), begin+6)
	if again.Resumed || again.Generation <= third.Generation || len(again.Cursors) != 0 {
		t.Errorf("attach after delete: %v (deleted generation %d)", again, third.Generation)
	}
	wantCodes(t, write(t, b, begin+7, cursor(third.Generation, 6)), taken)
}

func testSessionCursors(t *testing.T, db Database) {
	b := db(t)
	g := attach(t, b, from("e1", 1), begin).Generation
	x := &meshv1.SessionCursor{Topic: "x", Epoch: 4, Floor: 10, Acked: []uint64{12, 14, 20, 20}, Attempts: map[uint64]uint32{11: 2, 15: 1}}
	y := &meshv1.SessionCursor{Topic: "y", Epoch: 4, Floor: 1}
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{
		User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{x, y}, AddFilters: []string{"x", "y/#", "z"},
	}), ok)
	y = &meshv1.SessionCursor{Topic: "y", Epoch: 5, Floor: 3}
	wantCodes(t, write(t, b, begin,
		&meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{y}, RemoveFilters: []string{"z"}, AddFilters: []string{"y/#"}},
		&meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "gone"}}},
		&meshv1.SessionWrite{User: "u", Name: "s", Generation: g, RemoveTopics: []string{"gone", "never"}}), ok, ok, ok)
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	r := attach(t, b, from("e1", 2), begin)
	byTopic := protocmp.SortRepeated(func(a, b *meshv1.SessionCursor) bool { return a.Topic < b.Topic })
	want := &meshv1.AttachSessionResponse{Cursors: []*meshv1.SessionCursor{x, y}}
	if diff := cmp.Diff(want.Cursors, r.Cursors, protocmp.Transform(), byTopic); diff != "" {
		t.Errorf("cursors: %s", diff)
	}
	if slices.Sort(r.Filters); !slices.Equal(r.Filters, []string{"x", "y/#"}) {
		t.Errorf("filters: %v", r.Filters)
	}
	s, err := b.GetSession(within(t), "u", "s", begin)
	need(t, err)
	if s.Generation != r.Generation || s.Edge != "e1" || s.ConnectionId != 2 || len(s.Cursors) != 2 {
		t.Errorf("session: %v", s)
	}
	for _, c := range s.Cursors {
		if c.Topic == "x" && (c.Floor != 10 || c.Epoch != 4) {
			t.Errorf("cursor: %v", c)
		}
	}
}

func testSessionLifetime(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	req := from("e1", 1)
	req.TtlS = 60
	g := attach(t, b, req, begin).Generation
	// Held: no TTL runs.
	n, err := b.ExpireSessions(within(t), after(time.Hour), 10)
	need(t, err)
	if len(n) != 0 {
		t.Fatalf("%v were held and expired", n)
	}
	wantCodes(t, write(t, b, after(time.Hour), &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Detach: true, Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: 3}}}), ok)
	s, err := b.GetSession(within(t), "u", "s", after(time.Hour))
	need(t, err)
	if s.Edge != "" || s.ConnectionId != 0 || s.ExpiresAt != after(time.Hour+time.Minute) {
		t.Errorf("detached session: %v", s)
	}
	late := after(time.Hour + time.Minute + time.Second)
	if _, err := b.GetSession(within(t), "u", "s", late); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a session whose time is over: %v, want ErrNotFound", err)
	}
	if r := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "s", Peek: true}, late); r.Resumed {
		t.Errorf("peek sees a session whose time is over: %v", r)
	}
	again := attach(t, b, req, late)
	if again.Resumed || len(again.Cursors) != 0 || again.Generation <= g {
		t.Errorf("attach to a session whose time is over: %v", again)
	}
	wantCodes(t, write(t, b, late, &meshv1.SessionWrite{User: "u", Name: "s", Generation: again.Generation, Detach: true}), ok)
	// A longer ttl named at the next attach counts from then on.
	req.TtlS = 0
	g = attach(t, b, req, late+1).Generation
	wantCodes(t, write(t, b, late+1, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, AddFilters: []string{"x"}, Detach: true}), ok)
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{6 * 24 * time.Hour, 0}, {8 * 24 * time.Hour, 1}, {8 * 24 * time.Hour, 0}} {
		n, err := b.ExpireSessions(within(t), after(c.at), 10)
		need(t, err)
		if len(n) != c.want || c.want > 0 && n[0] != (backend.SessionKey{User: "u", Name: "s"}) {
			t.Errorf("%v expired after %s, want %d", n, c.at, c.want)
		}
	}
}

func testSessionEdges(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	for i, edge := range []string{"e1", "e1", "e2"} {
		req := &meshv1.AttachSessionRequest{User: "u", Name: fmt.Sprint(i), EdgeId: edge, TtlS: 60}
		g := attach(t, b, req, begin).Generation
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: fmt.Sprint(i), Generation: g, AddFilters: []string{"x"}}), ok)
	}
	late := &meshv1.AttachSessionRequest{User: "u", Name: "late", EdgeId: "e1", TtlS: 60}
	held := attach(t, b, late, after(time.Minute))
	edges, err := b.SessionEdges(within(t))
	need(t, err)
	if slices.Sort(edges); !slices.Equal(edges, []string{"e1", "e2"}) {
		t.Fatalf("edges %v", edges)
	}
	n, err := b.DetachEdge(within(t), "e1", after(time.Second), 100)
	need(t, err)
	if n != 2 {
		t.Errorf("%d detached, want the 2 held since before", n)
	}
	s, err := b.GetSession(within(t), "u", "0", after(2*time.Second))
	need(t, err)
	if s.Edge != "" || s.ExpiresAt != after(61*time.Second) {
		t.Errorf("detached: %v", s)
	}
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "late", Generation: held.Generation}), ok)
	// The holder lives after all: it may write, and that begins the TTL anew.
	wantCodes(t, write(t, b, after(3*time.Second), &meshv1.SessionWrite{User: "u", Name: "0", Generation: s.Generation, Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: 1}}}), ok)
	s, err = b.GetSession(within(t), "u", "0", after(4*time.Second))
	need(t, err)
	if s.ExpiresAt != after(63*time.Second) {
		t.Errorf("expires at %d, want %d", s.ExpiresAt, after(63*time.Second))
	}
}

// An edge's sessions are let go a slice at a time: each is let go once, those that attached since
// stay, and so do those of others.
func testEdgeInSlices(t *testing.T, db Database) {
	b := db(t)
	held := func(name, edge string, at uint64) uint64 {
		return attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: name, EdgeId: edge, TtlS: 60}, at).Generation
	}
	const before = 7
	for i := range before {
		held(fmt.Sprint(i), "e1", begin)
		held(fmt.Sprint("other", i), "e2", begin)
	}
	for i := range before {
		held(fmt.Sprint("since", i), "e1", after(time.Minute))
	}
	detach := func(now uint64, limit, want int) {
		t.Helper()
		n, err := b.DetachEdge(within(t), "e1", now, limit)
		need(t, err)
		if n != want {
			t.Errorf("%d of at most %d were let go, want %d", n, limit, want)
		}
	}
	wantHeld := func(want map[string]int) {
		t.Helper()
		page, _, err := b.ListSessions(within(t), backend.SessionQuery{Limit: 100}, begin)
		need(t, err)
		got := map[string]int{}
		for _, s := range page {
			got[s.GetEdge()]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sessions by edge: %s", diff)
		}
	}
	detach(after(time.Second), 3, 3)
	wantHeld(map[string]int{"": 3, "e1": 2*before - 3, "e2": before})
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	held("0", "e2", after(time.Second)) // let go or not: it is another edge's now
	held("6", "e2", after(time.Second))
	detach(after(time.Second), 1, 1)
	for n := 3; n > 0; {
		var err error
		n, err = b.DetachEdge(within(t), "e1", after(time.Second), 3)
		need(t, err)
	}
	wantHeld(map[string]int{"": before - 2, "e1": before, "e2": before + 2})
	detach(after(time.Second), 100, 0)
	detach(after(time.Hour), before+1, before)
	wantHeld(map[string]int{"": 2*before - 2, "e2": before + 2})
}

func testSessionPages(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	for _, user := range []string{"b", "a", "c"} {
		for i := range 5 {
			attach(t, b, &meshv1.AttachSessionRequest{User: user, Name: fmt.Sprintf("n%d", i), EdgeId: "e"}, begin)
		}
	}
	collect := func(user string, limit int) (names []string) {
		token := ""
		for {
			page, next, err := b.ListSessions(within(t), backend.SessionQuery{User: user, Limit: limit, PageToken: token}, begin)
			need(t, err)
			if len(page) > limit {
				t.Fatalf("page of %d, limit %d", len(page), limit)
			}
			for _, s := range page {
				names = append(names, s.User+"/"+s.Name)
			}
			if next == "" {
				return names
			}
			token = next
		}
	}
	if got := collect("", 4); len(got) != 15 || !slices.IsSorted(got) {
		t.Errorf("all: %v", got)
	}
	if got := collect("b", 2); !slices.Equal(got, []string{"b/n0", "b/n1", "b/n2", "b/n3", "b/n4"}) {
		t.Errorf("of b: %v", got)
	}
	if got := collect("nobody", 2); len(got) != 0 {
		t.Errorf("of nobody: %v", got)
	}
}
