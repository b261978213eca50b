package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func openNew(t *testing.T) *Backend {
	t.Helper()
	b, err := Open(context.Background(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A slice that could not be dropped in one go is not read from any more, and the next call goes on.
func TestDropGoesOn(t *testing.T) {
	b, ctx := openNew(t), context.Background()
	w, err := b.OpenWriter(ctx, backend.Owner{StoreID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.TakeShards(ctx, []int{1}); err != nil {
		t.Fatal(err)
	}
	const at, rows = uint64(1_000_000_000_000_000), 2*dropRows + 1
	batch := &backend.Batch{At: at, Commits: []backend.Commit{{Shard: 1, Number: 1}}}
	for n := range uint64(rows) {
		batch.Runs = append(batch.Runs, backend.Run{Shard: 1, Commit: 1, Topic: "x", Epoch: 1, First: n + 1, N: 1, At: at, Class: backend.Hour, Packed: []byte("x")})
	}
	if err := w.Commit(ctx, batch); err != nil {
		t.Fatal(err)
	}
	s := logSlice(backend.Hour, backend.Hour.Slice(at))
	done, err := b.drop(ctx, s, time.Now().Add(-time.Second)) // the time is over after one piece
	if err != nil || done {
		t.Fatalf("done %v, %v", done, err)
	}
	left := 0
	if err := b.write.QueryRow("SELECT count(*) FROM " + s.name()).Scan(&left); err != nil || left != rows-dropRows {
		t.Errorf("%d rows left, %v", left, err)
	}
	if err := b.ReadRuns(ctx, "x", 1, 1, rows, func(backend.Run) bool { t.Error("a row of a slice that goes"); return false }); err != nil {
		t.Fatal(err)
	}
	dropped := 0
	for deadline := time.Now().Add(2 * time.Minute); dropped == 0 && time.Now().Before(deadline); {
		// a busy machine may need several calls
		n, err := b.DropSlices(ctx, at+uint64((2*time.Hour).Microseconds()))
		if err != nil {
			t.Fatal(err)
		}
		dropped += n
	}
	if dropped != 1 {
		t.Errorf("dropped %d", dropped)
	}
	if err := b.write.QueryRow("SELECT count(*) FROM sqlite_master WHERE name = '" + s.name() + "'").Scan(&left); err != nil || left != 0 {
		t.Errorf("the table is there: %d, %v", left, err)
	}
}

func TestMakeSlicesReachesAhead(t *testing.T) {
	b, ctx := openNew(t), context.Background()
	const now = uint64(1_772_366_400_000_000)
	if err := b.MakeSlices(ctx, now); err != nil {
		t.Fatal(err)
	}
	for c := range backend.Classes {
		for _, s := range []backend.Slice{c.Slice(now), c.Slice(now).Next()} {
			if !b.slices.has(logSlice(c, s)) {
				t.Errorf("log slice %v %v is missing", c, s)
			}
		}
	}
	for c := range backend.KeyClasses {
		if !b.slices.has(keySlice(c, c.Reach(now))) {
			t.Errorf("key slice of %v is missing", c)
		}
	}
}
