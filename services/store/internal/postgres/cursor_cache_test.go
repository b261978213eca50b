package postgres

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
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
	const sessions = pagesEased + 3
	for i, g := range attachMany(t, d, sessions) { // a page each
		codes, err := d.WriteCursors(t.Context(), []*meshv1.SessionWrite{{User: "u", Name: fmt.Sprint(i), Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: uint64(i + 1)}}}}, now())
		need(t, err)
		if !slices.Equal(codes, []wirev1.Code{wirev1.Code_CODE_OK}) {
			t.Fatalf("session %d: %v", i, codes)
		}
	}
	need(t, d.pages.ease(t.Context()))
	if cursors, pages := d.pages.size(); cursors != sessions || pages != sessions {
		t.Errorf("%d cursors in %d pages, want %d in as many", cursors, pages, sessions)
	}
	_, missing, err := d.pages.list(t.Context())
	need(t, err)
	if len(missing) != 0 {
		t.Errorf("%v are missing after all was read", missing)
	}
}
