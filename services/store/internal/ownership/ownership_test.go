package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Whatever stores there are, each shard is in one share, and the shares differ by one shard at
// most.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}`), 1, 20, rapid.ID).Draw(t, "ids")
		var all []int
		least, most := topic.Shards, 0
		for _, id := range ids {
			shuffled := rapid.Permutation(ids).Draw(t, "order")
			was := slices.Clone(shuffled)
			share := Spread(shuffled, id)
			if !slices.Equal(shuffled, was) {
				t.Fatal("the caller's list is changed")
			}
			all = append(all, share...)
			least, most = min(least, len(share)), max(most, len(share))
		}
		slices.Sort(all)
		if len(all) != topic.Shards || len(slices.Compact(all)) != topic.Shards || most-least > 1 {
			t.Fatalf("%d shards, shares of %d to %d", len(all), least, most)
		}
	})
	if got := Spread([]string{"a", "b"}, "c"); got != nil {
		t.Errorf("a store that takes no part got %d shards", len(got))
	}
}

func TestRanges(t *testing.T) {
	a, b := backend.Owner{StoreID: "a", Address: "a:1"}, backend.Owner{StoreID: "b", Address: "b:1"}
	moved := backend.Owner{StoreID: "b", Address: "b:2"} // a run of b before, or after
	got := ranges(map[int]backend.Owner{0: a, 1: a, 2: b, 5: b, 6: moved, 1023: a})
	want := []*meshv1.OwnersResponse_Range{
		{First: 0, Last: 1, StoreId: "a", Address: "a:1"},
		{First: 2, Last: 2, StoreId: "b", Address: "b:1"},
		{First: 5, Last: 5, StoreId: "b", Address: "b:1"},
		{First: 6, Last: 6, StoreId: "b", Address: "b:2"},
		{First: 1023, Last: 1023, StoreId: "a", Address: "a:1"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// seconds are times of a test.
func seconds(s float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second)))
}

// view is what a database has of runs, each with one shard, by its place in the list.
func view(runs ...backend.Pulse) (v backend.View) {
	for i, p := range runs {
		v.Owners = append(v.Owners, backend.Ownership{Shard: i, Owner: backend.Owner{StoreID: p.StoreID, Incarnation: p.Incarnation}})
	}
	v.Runs = runs
	return v
}

func pulse(id string, mark string) backend.Pulse {
	return backend.Pulse{RunID: backend.RunID{StoreID: id, Incarnation: 1}, Mark: mark}
}

// Who does nothing for silence, in looks that follow each other, is silent; nobody else is.
func TestSilent(t *testing.T) {
	busy := pulse("busy", "1")
	busy.Busy = true
	everything := map[int]bool{0: true, 1: true, 2: true, 3: true}
	w := observations{}
	for i := range 5 { // looks that took no time, at 0, 0.5 … 2 s
		at := seconds(float64(i) / 2)
		if over := w.silent(backend.RunID{}, everything); len(over) > 0 {
			t.Fatalf("after %d looks %v are silent", i, over)
		}
		w.note(view(pulse("silent", "1"), pulse("alive", at.String()), busy, pulse("me", "1")), at, at)
	}
	me := backend.RunID{StoreID: "me", Incarnation: 1}
	if got, want := w.silent(me, everything), []suspect{{backend.RunID{StoreID: "silent", Incarnation: 1}, "1"}}; !slices.Equal(got, want) {
		t.Errorf("silent: %v, want %v", got, want)
	}
	if got := w.silent(me, map[int]bool{1: true}); got != nil {
		t.Errorf("shards of another's share are another's care: %v", got)
	}
	got := w.living(seconds(2))
	if slices.Sort(got); !slices.Equal(got, []string{"alive", "busy"}) {
		t.Errorf("living: %v", got)
	}
	gone := view(pulse("silent", "1"), pulse("alive", "2"))
	gone.Runs = nil
	w.note(gone, seconds(2.5), seconds(2.5))
	if got := w.silent(me, everything); got != nil {
		t.Errorf("fence whoever has no connections: %v", got)
	}
	if got := w.living(seconds(2.5)); !slices.Contains(got, "alive") {
		t.Errorf("connections that end are not the end of a store at once: %v", got)
	}
}

// A process that was frozen between two looks, or whose look took long, begins anew: it has not
// seen that the others did nothing.
func TestAThawedWitnessBeginsAnew(t *testing.T) {
	for name, looks := range map[string][][2]float64{
		"frozen between looks":       {{0, 0}, {0.5, 0.5}, {60, 60}, {60.5, 60.5}},
		"frozen in a look":           {{0, 0}, {0.5, 0.5}, {1, 60}, {60.1, 60.1}},
		"a slow first look":          {{0, 4}, {4.1, 4.1}, {5, 5}},
		"the database took its time": {{0, 0}, {1.4, 2.4}},
	} {
		w := observations{}
		for _, l := range looks {
			w.note(view(pulse("other", "1")), seconds(l[0]), seconds(l[1]))
			if over := w.silent(backend.RunID{}, map[int]bool{0: true}); over != nil {
				t.Errorf("%s: at %v %v are silent", name, l, over)
			}
		}
	}
}

// Beats over NATS add stores that came, and take away those that leave.
func TestLiving(t *testing.T) {
	now := time.Unix(1000, 0)
	beats := map[string]heard{
		"came":    {&meshv1.StoreBeat{}, now.Add(-time.Second)},
		"quiet":   {&meshv1.StoreBeat{}, now.Add(-3 * time.Second)},
		"leaving": {&meshv1.StoreBeat{Leaving: true}, now},
		// its goodbye is old, and the database sees it
		"stayed": {&meshv1.StoreBeat{Leaving: true}, now.Add(-silence)},
		"gone":   {&meshv1.StoreBeat{}, now.Add(-silence)},
	}
	got := living([]string{"seen", "quiet", "leaving", "stayed"}, beats, now)
	if slices.Sort(got); !slices.Equal(got, []string{"came", "quiet", "seen", "stayed"}) {
		t.Errorf("living: %v", got)
	}
}

type fakeShards struct {
	mu     sync.Mutex
	wanted []int
	held   bool
	// changed is told of each wish, if there is one.
	changed chan struct{}
}

func (f *fakeShards) Want(s []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted = s
	select {
	case f.changed <- struct{}{}:
	default: // nobody waits, or it is known
	}
}

func (f *fakeShards) PauseTaking(hold bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = hold
}

func (f *fakeShards) Owned() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// fakeWatch is a database with runs that do nothing.
type fakeWatch struct {
	view   backend.View
	err    error
	refuse error // what a connection is refused with
	alive  bool
	fence  error // what fencing answers; nil: as usual
	fenced []suspect
	// opened, asked and closed count connections, fences asked for, and connections given back.
	opened, asked, closed int
}

func (f *fakeWatch) OpenWatch(context.Context, backend.Owner) (backend.Watch, error) {
	f.opened++
	return f, f.refuse
}

func (f *fakeWatch) Look(context.Context) (backend.View, error) { return f.view, f.err }

func (f *fakeWatch) Fence(_ context.Context, id backend.RunID, mark string) error {
	f.asked++
	if f.fence != nil {
		return f.fence
	}
	if f.alive {
		return backend.ErrAlive
	}
	f.fenced = append(f.fenced, suspect{id, mark})
	return nil
}

func (f *fakeWatch) Close() error {
	f.closed++
	return nil
}

// rig is a manager whose looks and clock a test moves.
func rig(t *testing.T, dbs ...*fakeWatch) (m *Manager, shards *fakeShards, turn func()) {
	now := seconds(0)
	shards = &fakeShards{}
	cfg := Config{
		Owner: backend.Owner{StoreID: "me", Incarnation: 5, Address: "me:1"}, Shards: shards, Place: func(shard int) int { return shard % len(dbs) },
		Able: func() error { return nil }, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	}
	for _, db := range dbs {
		cfg.Databases = append(cfg.Databases, db)
	}
	m = New(cfg)
	return m, shards, func() {
		now = now.Add(beatEvery)
		for _, e := range m.watches {
			e.lookAndFence(t.Context())
		}
	}
}

// A store alone takes everything, fences whoever is recorded and silent, by the mark by which it
// was silent, and says what it owns.
func TestAlone(t *testing.T) {
	db := &fakeWatch{view: view(pulse("old", "7"))}
	m, shards, turn := rig(t, db)
	for range 4 {
		turn()
	}
	if len(db.fenced) > 0 {
		t.Errorf("fenced too early: %v", db.fenced)
	}
	turn()
	if len(shards.Owned()) != topic.Shards || shards.held {
		t.Errorf("wants %d shards, held %v", len(shards.Owned()), shards.held)
	}
	if want := []suspect{{backend.RunID{StoreID: "old", Incarnation: 1}, "7"}}; !slices.Equal(db.fenced, want) {
		t.Errorf("fenced %v", db.fenced)
	}
	want := []*meshv1.OwnersResponse_Range{{First: 0, Last: topic.Shards - 1, StoreId: "me", Address: "me:1"}}
	if diff := cmp.Diff(want, m.Owners(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// A store that can't look knows nobody, claims nothing at first, fences nobody, and connects again.
func TestNothingIsClaimedBeforeALook(t *testing.T) {
	db := &fakeWatch{view: view(pulse("old", "7")), err: errors.New("away")}
	_, shards, turn := rig(t, db)
	for range 10 {
		turn()
	}
	if !shards.held || len(db.fenced) > 0 || db.opened != 10 {
		t.Errorf("held %v, fenced %v, opened %d times", shards.held, db.fenced, db.opened)
	}
	db.err, db.refuse = nil, errors.New("too many connections")
	turn()
	if turn(); !shards.held || db.opened != 12 {
		t.Errorf("without a connection: held %v, opened %d times", shards.held, db.opened)
	}
	db.refuse = nil
	turn()
	if shards.held {
		t.Error("it still holds back")
	}
	db.err = errors.New("away")
	turn()
	if shards.held {
		t.Error("what was seen once is forgotten")
	}
}

// Who is silent in one database and not in another is fenced in the first alone.
func TestEachDatabaseHasItsSilence(t *testing.T) {
	one, two := &fakeWatch{view: view(pulse("even", "1"), pulse("odd", "1"))}, &fakeWatch{view: view(pulse("even", "1"), pulse("odd", "1"))}
	m, _, turn := rig(t, one, two)
	for i := range 6 {
		// "odd" works in the first, though its shard is in the second
		one.view.Runs[1].Mark = fmt.Sprint(i)
		turn()
	}
	id := func(s string) backend.RunID { return backend.RunID{StoreID: s, Incarnation: 1} }
	if want := []suspect{{id("even"), "1"}}; !slices.Equal(one.fenced[:1], want) {
		t.Errorf("fenced in the first: %v", one.fenced)
	}
	if want := []suspect{{id("odd"), "1"}}; !slices.Equal(two.fenced[:1], want) {
		t.Errorf("fenced in the second: %v", two.fenced)
	}
	// and one that does something at the last moment is not fenced: no more than asked
	two.alive = true
	n := len(two.fenced)
	turn()
	if len(two.fenced) != n || m.watches[1].watch == nil {
		t.Error("a refused fence costs the watch")
	}
}
