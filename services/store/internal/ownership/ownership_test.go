package ownership

import (
	"context"
	"errors"
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

// Whatever stores there are, each shard is in one share, and the shares differ by one shard at most.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}`), 1, 20, rapid.ID).Draw(t, "ids")
		var all []int
		least, most := topic.Shards, 0
		for _, id := range ids {
			shuffled := rapid.Permutation(ids).Draw(t, "order")
			share := Spread(shuffled, id)
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
	got := ranges(map[int]backend.Owner{0: a, 1: a, 2: b, 5: b, 1023: a})
	want := []*meshv1.OwnersResponse_Range{
		{First: 0, Last: 1, StoreId: "a", Address: "a:1"},
		{First: 2, Last: 2, StoreId: "b", Address: "b:1"},
		{First: 5, Last: 5, StoreId: "b", Address: "b:1"},
		{First: 1023, Last: 1023, StoreId: "a", Address: "a:1"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestSilent(t *testing.T) {
	now := time.Unix(1000, 0)
	me := run{"me", 5}
	beats := map[string]heard{
		"live":    {&meshv1.StoreBeat{StoreIncarnation: 1}, now.Add(-time.Second)},
		"quiet":   {&meshv1.StoreBeat{StoreIncarnation: 1}, now.Add(-3 * time.Second)},
		"reborn":  {&meshv1.StoreBeat{StoreIncarnation: 2}, now},
		"leaving": {&meshv1.StoreBeat{StoreIncarnation: 1, Leaving: true}, now},
	}
	records := func(id string, incarnation uint64) []backend.Ownership {
		return []backend.Ownership{{Shard: 7, Owner: backend.Owner{StoreID: id, Incarnation: incarnation}}, {Shard: 8, Owner: backend.Owner{StoreID: id, Incarnation: incarnation}}}
	}
	for _, c := range []struct {
		name    string
		records []backend.Ownership
		wanted  []int
		judge   bool
		want    []run
	}{
		{"a live one keeps its shards", records("live", 1), []int{7, 8}, true, nil},
		{"a quiet one does not", records("quiet", 1), []int{7, 8}, true, []run{{"quiet", 1}}},
		{"who was not reachable itself does not judge", records("quiet", 1), []int{7, 8}, false, nil},
		{"shards of another's share are another's care", records("quiet", 1), []int{6}, true, nil},
		{"never heard of", records("gone", 1), []int{8}, true, []run{{"gone", 1}}},
		{"its former run", records("reborn", 1), []int{7}, true, []run{{"reborn", 1}}},
		{"it gives back by itself", records("leaving", 1), []int{7}, true, nil},
		{"my own former run, at once", records("me", 4), []int{7}, false, []run{{"me", 4}}},
		{"myself", records("me", 5), []int{7}, true, nil},
	} {
		if got := silent(c.records, c.wanted, me, beats, now, c.judge); !slices.Equal(got, c.want) {
			t.Errorf("%s: fence %v, want %v", c.name, got, c.want)
		}
	}
	got := living(beats, now)
	if slices.Sort(got); !slices.Equal(got, []string{"live", "reborn"}) {
		t.Errorf("living: %v", got)
	}
}

type fakeShards struct {
	mu     sync.Mutex
	wanted []int
	held   bool
}

func (f *fakeShards) Want(s []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted = s
}

func (f *fakeShards) Hold(hold bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = hold
}

func (f *fakeShards) Owned() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

type fakeOwners struct {
	records []backend.Ownership
	err     error
	fenced  []run
}

func (f *fakeOwners) Owners(context.Context) ([]backend.Ownership, error) { return f.records, f.err }

func (f *fakeOwners) Fence(_ context.Context, id string, incarnation uint64) error {
	f.fenced = append(f.fenced, run{id, incarnation})
	return nil
}

// A store alone takes everything, fences whoever is recorded still, and says so.
func TestAlone(t *testing.T) {
	shards := &fakeShards{}
	db := &fakeOwners{records: []backend.Ownership{{Shard: 3, Owner: backend.Owner{StoreID: "old", Incarnation: 1}}}}
	m := New(Config{
		Owner: backend.Owner{StoreID: "me", Incarnation: 5, Address: "me:1"}, Backend: db, Shards: shards,
		Able: func() error { return nil }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(shards.Owned()) != topic.Shards || shards.held {
		t.Errorf("wants %d shards, held %v", len(shards.Owned()), shards.held)
	}
	if len(db.fenced) == 0 || db.fenced[0] != (run{"old", 1}) {
		t.Errorf("fenced %v", db.fenced)
	}
	want := []*meshv1.OwnersResponse_Range{{First: 0, Last: topic.Shards - 1, StoreId: "me", Address: "me:1"}}
	if diff := cmp.Diff(want, m.Owners(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	db.err = errors.New("away") // what was known stays
	m.look(t.Context())
	if len(m.records) != 1 {
		t.Error("records were forgotten")
	}
}
