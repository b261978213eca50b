package log

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func owner(id string) backend.Owner {
	return backend.Owner{StoreID: id, Incarnation: 1, Address: id + ":1"}
}

func now() uint64 { return uint64(time.Now().UnixMicro()) }

// serverAt has a database that is only slow answer in its own time.
func serverAt(t *testing.T, url string) *server.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
	defer cancel()
	s, err := server.Open(ctx, server.Config{URL: url, Patience: backendtest.Patience, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	need(t, err)
	t.Cleanup(func() { need(t, s.Close()) })
	return s
}

func open(t *testing.T, url string) *Log {
	t.Helper()
	s := serverAt(t, url)
	return New(s, partition.New(s))
}

// A connection that broke while it was idle is found out before a batch is sent: the outcome is
// clear.
func TestABrokenIdleConnectionIsNoUnknownOutcome(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	need(t, d.partitions.MakeSlices(t.Context(), now()))
	opened, err := d.OpenWriter(t.Context(), owner("a"))
	need(t, err)
	w, _ := opened.(*Writer)
	got, err := w.TakeShards(t.Context(), []int{3})
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	need(t, w.Commit(t.Context(), &backend.Batch{ID: [16]byte{1}, At: now(), Commits: []backend.Commit{{Shard: 3, Number: 1}}}))
	need(t, d.Fence(t.Context(), "a", 1))
	w.used = time.Now().Add(-time.Minute)
	if err := w.Commit(t.Context(), &backend.Batch{ID: [16]byte{2}, At: now(), Commits: []backend.Commit{{Shard: 3, Number: 2}}}); !errors.Is(err, backend.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
