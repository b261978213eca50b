package backendtest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func wantCursors(t *testing.T, b backend.Backend, user, name string, want ...*meshv1.SessionCursor) {
	t.Helper()
	got := attach(t, b, &meshv1.AttachSessionRequest{User: user, Name: name, Peek: true}, begin).GetCursors()
	slices.SortFunc(got, func(a, b *meshv1.SessionCursor) int { return cmp.Compare(a.GetTopic(), b.GetTopic()) })
	if diff := gocmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("cursors of %s/%s (-want +got): %s", user, name, diff)
	}
}

// What was written is found whichever fold lies between, and the last word counts, wherever the
// earlier ones lie.
func testCursorFolds(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	g := attach(t, b, from("e", 1), begin).GetGeneration()
	put := func(all ...*meshv1.SessionCursor) {
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: all}), ok)
	}
	x := &meshv1.SessionCursor{Topic: "x", Epoch: 1 << 62, Floor: 7, Acked: []uint64{9, 9, 12, 40}, Attempts: map[uint64]uint32{8: 3, 10: 1}}
	y := &meshv1.SessionCursor{Topic: "y", Epoch: 2, Floor: 1}
	for _, how := range []backend.Fold{backend.FoldPack, backend.FoldAll, backend.FoldDue, backend.FoldPack, backend.FoldPack, backend.FoldAll, backend.FoldAll} {
		put(x, y)
		need(t, b.FoldCursors(within(t), how))
		wantCursors(t, b, "u", "s", x, y)
		y = &meshv1.SessionCursor{Topic: "y", Epoch: 2, Floor: y.GetFloor() + 1}
		put(y)
		wantCursors(t, b, "u", "s", x, y)
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, RemoveTopics: []string{"x"}}), ok)
		wantCursors(t, b, "u", "s", y)
		need(t, b.FoldCursors(within(t), how))
		wantCursors(t, b, "u", "s", y)
		x = &meshv1.SessionCursor{Topic: "x", Epoch: 3, Floor: 1} // begins anew, further back
		put(x)
		wantCursors(t, b, "u", "s", x, y)
		_, err := b.DropSlices(within(t), begin)
		need(t, err)
		wantCursors(t, b, "u", "s", x, y)
	}
}

// A session of the same name has nothing of one that was deleted, or whose time was over, and what
// lies in order already of that one is gone too.
func testCursorsOfTheDeleted(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	at := begin
	for i, how := range []backend.Fold{backend.FoldPack, backend.FoldAll, backend.FoldDue} {
		for _, end := range []string{"deleted", "over"} {
			g := attach(t, b, from("e", 1), at).GetGeneration()
			wantCodes(t, write(t, b, at, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: fmt.Sprint("t", i), Floor: 5}}}), ok)
			need(t, b.FoldCursors(within(t), how))
			wantCodes(t, write(t, b, at, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "t", Floor: 5}}}), ok)
			if end == "deleted" {
				remove(t, b, "u", "s")
			} else {
				wantCodes(t, write(t, b, at, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Detach: true}), ok)
				at += 8 * 24 * 3600 * 1e6
			}
			at++
			need(t, b.FoldCursors(within(t), how))
			if r := attach(t, b, from("e", 2), at); r.GetResumed() || len(r.GetCursors()) > 0 {
				t.Fatalf("%s, fold %d: the next session of that name begins with %v", end, how, r)
			}
			need(t, b.FoldCursors(within(t), how))
			wantCursors(t, b, "u", "s")
			remove(t, b, "u", "s")
			at++
		}
	}
}

func testCursorHistory(t *testing.T, db Database) {
	b := db(t)
	defer func() { closeNow(t, b) }()
	CursorHistory(t, 250, func(*rand.Rand) backend.Backend { return b }, func() {
		closeNow(t, b)
		b = db(t)
	})
}

// modelSession is what a session should be.
type modelSession struct {
	user, name string
	generation uint64
	cursors    map[string]*meshv1.SessionCursor
}

func (s *modelSession) list() (all []*meshv1.SessionCursor) {
	for _, topic := range slices.Sorted(maps.Keys(s.cursors)) {
		all = append(all, s.cursors[topic])
	}
	return all
}

// CursorHistory does steps at random on what pick says, and compares with what should be: a reading
// tells exactly what was answered OK. restart opens the database anew.
func CursorHistory(t *testing.T, steps int, pick func(*rand.Rand) backend.Backend, restart func()) {
	seed := rand.Uint64() // #nosec G404 -- printed, to run it again
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1)) // #nosec G404
	all := make([]*modelSession, 12)
	at := begin
	for i := range all {
		all[i] = &modelSession{user: fmt.Sprint("u", i%3), name: fmt.Sprint("s", i)}
	}
	for range steps {
		at++
		b, s := pick(r), all[r.IntN(len(all))]
		switch dice := r.IntN(100); {
		case dice < 12:
			resp := attach(t, b, &meshv1.AttachSessionRequest{User: s.user, Name: s.name, EdgeId: fmt.Sprint("e", r.IntN(3))}, at)
			if resp.GetResumed() != (s.generation > 0) || resp.GetGeneration() <= s.generation {
				t.Fatalf("attach: %v after generation %d", resp, s.generation)
			}
			s.generation = resp.GetGeneration()
			if s.cursors == nil {
				s.cursors = map[string]*meshv1.SessionCursor{}
			}
		case dice < 60:
			writeAtRandom(t, r, b, all, at)
		case dice < 65:
			if s.generation > 0 {
				remove(t, b, s.user, s.name)
				s.generation, s.cursors = 0, nil
			}
		case dice < 75:
			need(t, b.FoldCursors(within(t), backend.FoldPack))
		case dice < 80:
			need(t, b.FoldCursors(within(t), backend.FoldAll))
		case dice < 82:
			_, err := b.DropSlices(within(t), begin)
			need(t, err)
		case dice < 84:
			restart()
		default:
			wantCursors(t, b, s.user, s.name, s.list()...)
		}
	}
	b := pick(r)
	for _, s := range all {
		wantCursors(t, b, s.user, s.name, s.list()...)
	}
}

// writeAtRandom writes of several sessions in one call, some of them twice, some under a stale
// generation.
func writeAtRandom(t *testing.T, r *rand.Rand, b backend.Backend, all []*modelSession, at uint64) {
	t.Helper()
	var writes []*meshv1.SessionWrite
	var want []wirev1.Code
	var then []func()
	for range 1 + r.IntN(6) {
		s := all[r.IntN(len(all))]
		w := &meshv1.SessionWrite{User: s.user, Name: s.name, Generation: s.generation}
		for range r.IntN(3) {
			c := &meshv1.SessionCursor{Topic: fmt.Sprint("t", r.IntN(4)), Epoch: r.Uint64() >> 1, Floor: r.Uint64N(1000)}
			if r.IntN(4) == 0 {
				c.Acked, c.Attempts = []uint64{c.Floor + 2, c.Floor + 5}, map[uint64]uint32{c.Floor + 1: r.Uint32N(9), c.Floor + 6: 1}
			}
			w.Cursors = append(w.Cursors, c)
		}
		gone := fmt.Sprint("t", r.IntN(4))
		if r.IntN(5) == 0 && !slices.ContainsFunc(w.GetCursors(), func(c *meshv1.SessionCursor) bool { return c.GetTopic() == gone }) {
			w.RemoveTopics = []string{gone}
		}
		if r.IntN(10) == 0 {
			w.AddFilters = []string{"f"}
		}
		switch {
		case s.generation == 0:
			w.Generation = at
			want = append(want, notFound)
		case r.IntN(8) == 0:
			w.Generation--
			want = append(want, taken)
		default:
			want = append(want, ok)
			then = append(then, func() {
				for _, c := range w.GetCursors() {
					s.cursors[c.GetTopic()] = c
				}
				for _, gone := range w.GetRemoveTopics() {
					delete(s.cursors, gone)
				}
			})
		}
		writes = append(writes, w)
	}
	wantCodes(t, write(t, b, at, writes...), want...)
	for _, f := range then {
		f()
	}
}
