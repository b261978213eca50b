package backendtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func testOwnershipExclusive(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w1 := writer(t, b, owner("a"), 1, 2, 3)
	w2, err := b.OpenWriter(within(t), owner("b"))
	need(t, err)
	defer closeNow(t, w2)
	got, err := w2.TakeShards(within(t), []int{3, 4, 2})
	need(t, err)
	if !slices.Equal(got, []int{4}) {
		t.Errorf("claimed %v, want 4 alone", got)
	}
	got, err = w1.TakeShards(within(t), []int{3, 5})
	need(t, err)
	if slices.Sort(got); !slices.Equal(got, []int{3, 5}) {
		t.Errorf("claiming an own shard again: %v", got)
	}
	owners, err := b.Owners(within(t))
	need(t, err)
	slices.SortFunc(owners, func(x, y backend.Ownership) int { return x.Shard - y.Shard })
	want := []backend.Ownership{{Shard: 1, Owner: owner("a")}, {Shard: 2, Owner: owner("a")}, {Shard: 3, Owner: owner("a")}, {Shard: 4, Owner: owner("b")}, {Shard: 5, Owner: owner("a")}}
	if diff := cmp.Diff(want, owners); diff != "" {
		t.Error(diff)
	}
	if err := w2.Commit(within(t), oneRun(1, 1, 1, "x", 1, 1, begin, backend.Day)); !errors.Is(err, backend.ErrLost) {
		t.Errorf("commit to another's shard: %v", err)
	}
}

func testTakeover(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	old := writer(t, b, owner("a"), 1, 2)
	epoch := load(t, old, 1, 2).shards[1].Epoch
	need(t, old.Commit(within(t), oneRun(1, 1, epoch, "x", 1, 1, begin, backend.Day)))
	need(t, b.Fence(within(t), "a", 7))
	need(t, b.Fence(within(t), "a", 7)) // nobody left: no error
	next := writer(t, b, owner("b"), 1, 2)
	s := load(t, next, 1, 2)
	if len(s.runs) != 1 {
		t.Fatalf("the new owner sees %d runs, want 1", len(s.runs))
	}
	late := oneRun(1, 2, epoch, "x", 2, 1, begin, backend.Day)
	if err := old.Commit(within(t), late); !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrUnknown) {
		t.Errorf("commit of the old owner: %v, want ErrLost or ErrUnknown", err)
	}
	if yes, err := next.Committed(within(t), late.ID); err != nil || yes {
		t.Errorf("the old owner's batch: committed %v, %v", yes, err)
	}
	need(t, next.Commit(within(t), oneRun(1, 2, epoch, "x", 2, 1, begin, backend.Day)))
	if got := len(load(t, next, 1).runs); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
	err := old.Checkpoint(within(t), &backend.Checkpoint{Topics: []backend.Topic{{Shard: 1, Topic: "x", Epoch: epoch, Head: 77, Oldest: 1}}})
	if err == nil {
		t.Error("the old owner could still checkpoint")
	}
	owners, err := b.Owners(within(t))
	need(t, err)
	for _, o := range owners {
		if o.StoreID != "b" {
			t.Errorf("shard %d is said to be %s's", o.Shard, o.StoreID)
		}
	}
}

func testFenceIncarnation(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	restarted := owner("a")
	restarted.Incarnation = 8
	w := writer(t, b, restarted, 1)
	epoch := load(t, w, 1).shards[1].Epoch
	need(t, b.Fence(within(t), "a", 7))
	need(t, b.Fence(within(t), "b", 8))
	need(t, w.Commit(within(t), oneRun(1, 1, epoch, "x", 1, 1, begin, backend.Day)))
}

func testReleaseAndClose(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	w1 := writer(t, b, owner("a"), 1, 2, 3)
	epoch := load(t, w1, 1).shards[1].Epoch
	need(t, w1.ReleaseShards(within(t), []int{1}))
	if err := w1.Commit(within(t), oneRun(1, 1, epoch, "x", 1, 1, begin, backend.Day)); !errors.Is(err, backend.ErrLost) {
		t.Errorf("commit to a shard given back: %v", err)
	}
	w2 := writer(t, b, owner("b"), 1)
	closeNow(t, w1)
	owners, err := b.Owners(within(t))
	need(t, err)
	if want := []backend.Ownership{{Shard: 1, Owner: owner("b")}}; !cmp.Equal(want, owners) {
		t.Errorf("owners after the close: %v", owners)
	}
	got, err := w2.TakeShards(within(t), []int{2, 3})
	need(t, err)
	if slices.Sort(got); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("claimed %v after the owner closed", got)
	}
}

// A hold is another one once another owner had the shard, and in another epoch; while a shard is
// owned it stays the same, and a shard that is not owned has none.
func testHolds(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	seen := map[backend.Hold]string{}
	hold := func(w backend.Writer, what string) {
		t.Helper()
		h := w.Hold(1)
		if h == "" || seen[h] != "" {
			t.Errorf("%s: hold %q, which was also that of %s", what, h, seen[h])
		}
		seen[h] = what
		if got, err := w.TakeShards(within(t), []int{1, 2}); err != nil || len(got) != 2 || w.Hold(1) != h {
			t.Errorf("%s: hold %q of a shard that is taken again, %q before, %v", what, w.Hold(1), h, err)
		}
		if none := w.Hold(3); none != "" {
			t.Errorf("%s: hold %q of a shard that is not owned", what, none)
		}
		need(t, w.ReleaseShards(within(t), []int{1, 2}))
		if none := w.Hold(1); none != "" {
			t.Errorf("%s: hold %q of a shard that was given back", what, none)
		}
		closeNow(t, w)
	}
	hold(writer(t, b, owner("a"), 1), "a")
	hold(writer(t, b, owner("b"), 1), "b")
	hold(writer(t, b, owner("a"), 1), "a after b")
	again := owner("a")
	again.Incarnation++
	hold(writer(t, b, again, 1), "another incarnation of a")
	w := writer(t, b, owner("a"), 1)
	epoch := load(t, w, 1).shards[1].Epoch
	closeNow(t, w)
	need(t, b.NewEpoch(within(t), epoch+1))
	hold(writer(t, b, owner("a"), 1), "a in another epoch")
}

func testNewEpoch(t *testing.T, db Database) {
	b := db(t)
	w := writer(t, b, owner("a"), 1)
	epoch := load(t, w, 1).shards[1].Epoch
	need(t, w.Commit(within(t), oneRun(1, 1, epoch, "x", 1, 3, begin, backend.Day)))
	need(t, w.Commit(within(t), oneRun(1, 2, epoch, "x", 4, 3, begin, backend.Day)))
	need(t, w.Checkpoint(within(t), &backend.Checkpoint{
		Shards: []backend.Shard{{Shard: 1, Epoch: epoch, Commit: 1}}, Topics: []backend.Topic{{Shard: 1, Topic: "x", Epoch: epoch, Head: 3, Oldest: 1}},
	}))
	if err := b.NewEpoch(within(t), epoch+10); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("new epoch under an owner: %v, want ErrConflict", err)
	}
	closeNow(t, w)
	if err := b.NewEpoch(within(t), epoch); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("the same epoch again: %v, want ErrConflict", err)
	}
	need(t, b.NewEpoch(within(t), epoch+10))
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	w = writer(t, b, owner("a"), 1, 900)
	s := load(t, w, 1, 900)
	if s.shards[1].Epoch != epoch+10 || s.shards[900].Epoch != epoch+10 {
		t.Errorf("epochs %d and %d, want %d", s.shards[1].Epoch, s.shards[900].Epoch, epoch+10)
	}
	if len(s.topics) != 0 || len(s.runs) != 0 {
		t.Errorf("of the old epoch: %v %v", s.topics, s.runs)
	}
	// Commit numbers go on, or begin again where the backend says so; what Load says is what
	// counts.
	need(t, w.Commit(within(t), oneRun(1, s.shards[1].Commit+1, epoch+10, "x", 1, 1, begin, backend.Day)))
	if got := firsts(t, b, "x", epoch+10, 1, 9, 9); !slices.Equal(got, []uint64{1}) {
		t.Errorf("log of the new epoch: %v", got)
	}
}
