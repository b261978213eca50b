package sessions

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A page that others made void while it was read says nothing: a cursor that was removed stays so.
func TestVoidPagesAreNotTakenIn(t *testing.T) {
	p := newPages(nil)
	p.forget(10)
	s := &stored{page: *newPage(1), id: 9, version: 9}
	s.page.add(sessionKey{"u", "s"}, cursor{topic: "x", generation: 1, floor: 3})
	p.add(s)
	if cursors, pages := p.size(); cursors != 0 || pages != 0 {
		t.Errorf("%d cursors in %d pages, want none", cursors, pages)
	}
	s.id = 10
	p.add(s)
	if got := p.of(sessionKey{"u", "s"}); len(got) != 1 || got[0].floor != 3 {
		t.Errorf("of a page that counts: %v", got)
	}
}

// What was read a little at a time is what a look at all of it finds.
func TestPagesAreReadWithEase(t *testing.T) {
	d := open(t, pgtest.URL(t))
	const many = pagesEased + 3
	for i, g := range attachMany(t, d, many) { // a page each
		codes, err := d.WriteCursors(t.Context(), []*meshv1.SessionWrite{{User: "u", Name: fmt.Sprint(i), Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: uint64(i + 1)}}}}, now())
		need(t, err)
		if !slices.Equal(codes, []wirev1.Code{wirev1.Code_CODE_OK}) {
			t.Fatalf("session %d: %v", i, codes)
		}
	}
	need(t, d.pages.ease(t.Context()))
	if cursors, pages := d.pages.size(); cursors != many || pages != many {
		t.Errorf("%d cursors in %d pages, want %d in as many", cursors, pages, many)
	}
	_, missing, err := d.pages.list(t.Context())
	need(t, err)
	if len(missing) != 0 {
		t.Errorf("%v are missing after all was read", missing)
	}
}

// What else a write changes is decided with its session locked: a removal by the session's former
// holder must not take a cursor from the new one.
func TestOnlyCursorsAreWrittenWithoutALock(t *testing.T) {
	cursor := []*meshv1.SessionCursor{{Topic: "room/a"}}
	for name, c := range map[string]struct {
		write *meshv1.SessionWrite
		plain bool
	}{
		"cursors":            {&meshv1.SessionWrite{Cursors: cursor}, true},
		"nothing":            {&meshv1.SessionWrite{}, false},
		"a topic removed":    {&meshv1.SessionWrite{RemoveTopics: []string{"room/a"}}, false},
		"one moved, one not": {&meshv1.SessionWrite{Cursors: cursor, RemoveTopics: []string{"room/b"}}, false},
		"a filter":           {&meshv1.SessionWrite{Cursors: cursor, AddFilters: []string{"room/+"}}, false},
		"a detach":           {&meshv1.SessionWrite{Cursors: cursor, Detach: true}, false},
	} {
		if plain(c.write) != c.plain {
			t.Errorf("%s: plain is %v", name, !c.plain)
		}
	}
}

// attachMany makes sessions and says their generations.
func attachMany(t *testing.T, d *Sessions, n int) []uint64 {
	t.Helper()
	generations := make([]uint64, n)
	for i := range generations {
		resp, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: fmt.Sprint(i), EdgeId: "e"}, backend.Quota{}, now())
		need(t, err)
		generations[i] = resp.GetGeneration()
	}
	return generations
}
