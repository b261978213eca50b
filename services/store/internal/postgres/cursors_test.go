package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// Several stores on one database, any of which may be asked, as after takeovers, while one or
// another folds all the time.
func TestCursorHistoryOfSeveralStores(t *testing.T) {
	url := pgtest.URL(t)
	stores := []*DB{open(t, url), open(t, url), open(t, url)}
	ctx, stop := context.WithCancel(t.Context())
	var folding sync.WaitGroup
	for i, d := range stores[:2] {
		folding.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				if err := d.FoldCursors(ctx, []backend.Fold{backend.FoldPack, backend.FoldAll, backend.FoldPack}[n%3]); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	backendtest.CursorHistory(t, 300, func(r *rand.Rand) backend.Backend { return stores[r.IntN(len(stores))] }, func() {
		stores[2] = open(t, url) // a store that knows nothing yet
	})
	stop()
	folding.Wait()
}

// attachMany makes sessions and says their generations.
func attachMany(t *testing.T, d *DB, n int) []uint64 {
	t.Helper()
	generations := make([]uint64, n)
	for i := range generations {
		resp, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: fmt.Sprint(i), EdgeId: "e"}, backend.Quota{}, now())
		need(t, err)
		generations[i] = resp.GetGeneration()
	}
	return generations
}

func floorOf(t *testing.T, d *DB, name string) uint64 {
	t.Helper()
	resp, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: name, Peek: true}, backend.Quota{}, now())
	need(t, err)
	if len(resp.GetCursors()) == 0 {
		return 0
	}
	return resp.GetCursors()[0].GetFloor()
}

// The server is killed in the middle of writes and folds: what was answered is there afterwards.
func TestCursorsSurviveKills(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	d := open(t, server.URL())
	generations := attachMany(t, d, 8)
	answered := make([]atomic.Uint64, len(generations))
	moved := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, g := range generations {
		all.Go(func() {
			for floor := uint64(1); ctx.Err() == nil; floor++ {
				codes, err := d.WriteCursors(ctx, []*meshv1.SessionWrite{{
					User: "u", Name: fmt.Sprint(i), Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "x", Epoch: 1, Floor: floor}},
				}}, now())
				if err == nil && codes[0] == wirev1.Code_CODE_OK {
					answered[i].Store(floor)
					select {
					case moved <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			// it may fail while there is no server
			_ = d.FoldCursors(ctx, []backend.Fold{backend.FoldPack, backend.FoldPack, backend.FoldAll}[n%3])
		}
	})
	further := func() {
		t.Helper()
		deadline := time.After(backendtest.Patience)
		for i := range answered {
			for from := answered[i].Load(); answered[i].Load() < from+5; {
				select {
				case <-moved:
				case <-deadline:
					t.Fatal("nothing is written any more")
				}
			}
		}
	}
	for range 3 {
		further()
		need(t, server.Kill())
		need(t, server.Restart())
	}
	further()
	stop()
	all.Wait()
	fresh := open(t, server.URL())
	for i := range answered {
		for _, store := range []*DB{d, fresh} {
			if got, want := floorOf(t, store, fmt.Sprint(i)), answered[i].Load(); got < want {
				t.Errorf("session %d: floor %d, %d was answered", i, got, want)
			}
		}
	}
}

// While an old snapshot keeps the dead, cursors kill no rows, however much is written, and however
// often it is packed: tables in which rows would be replaced don't grow.
func TestCursorsKillNoRows(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	const sessions, rounds = 100, 40
	generations := attachMany(t, d, sessions)
	need(t, d.FoldCursors(t.Context(), backend.FoldAll))
	reader, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, reader.Close(context.Background())) }()
	_, err = reader.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	need(t, err)
	size := func() (bytes int64) {
		t.Helper()
		need(t, reader.QueryRow(t.Context(), `SELECT sum(pg_relation_size(c.oid))::bigint FROM pg_class AS c
			WHERE c.relnamespace = 'pushmesh'::regnamespace AND c.relkind = 'r' AND c.relname IN ('session', 'session_filter', 'cursor', 'cursor_folded')`).Scan(&bytes))
		return bytes
	}
	before := size()
	for round := range rounds {
		var writes []*meshv1.SessionWrite
		for i, g := range generations {
			writes = append(writes, &meshv1.SessionWrite{User: "u", Name: fmt.Sprint(i), Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: uint64(round + 1)}}})
		}
		codes, err := d.WriteCursors(t.Context(), writes, now())
		need(t, err)
		for i, c := range codes {
			if c != wirev1.Code_CODE_OK {
				t.Fatalf("write %d: %v", i, c)
			}
		}
		if round%10 == 9 {
			need(t, d.FoldCursors(t.Context(), backend.FoldPack))
		}
	}
	if after := size(); after > before {
		t.Errorf("%d cursors of %d sessions grew their tables from %d to %d bytes", sessions*rounds, sessions, before, after)
	}
	var cursors, pages int
	need(t, connectTo(t, url).QueryRow(t.Context(), `SELECT sum(cardinality(users)), count(*) FROM pushmesh.cursor_page
		WHERE id >= (SELECT through FROM pushmesh.cursor_folded)`).Scan(&cursors, &pages))
	if cursors != sessions || pages != 1 {
		t.Errorf("%d cursors in %d pages after packing, want %d in one", cursors, pages, sessions)
	}
	for i := range generations {
		if got := floorOf(t, d, fmt.Sprint(i)); got != rounds {
			t.Errorf("session %d: floor %d, want %d", i, got, rounds)
		}
	}
}

// Cursors from before pages, and from pages, are the same before and after a step back and forth.
func TestCursorsMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	db := stdlib.OpenDB(*conn.Config().Copy())
	defer func() { need(t, db.Close()) }()
	steps, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files, goose.WithTableName("pushmesh_migration"), goose.WithDisableGlobalRegistry(true))
	need(t, err)
	_, err = steps.UpTo(t.Context(), 19)
	need(t, err)
	_, err = conn.Exec(t.Context(), `
		INSERT INTO pushmesh.session (user_id, name, generation, connection_id, attached_at, expires_at, ttl, edge) VALUES ('u', '0', 7, 1, 1, 0, 1000, 'e');
		INSERT INTO pushmesh.cursor (user_id, name, topic, epoch, floor, acked, tried, attempts) VALUES
			('u', '0', 'a', 1, 5, '{7,8}', '{6}', '{2}'), ('u', '0', 'b', 1, 9, '{}', '{}', '{}'), ('u', '0', 'c', 1, 1, '{}', '{}', '{}')`)
	need(t, err)
	d := open(t, url)
	_, err = d.WriteCursors(t.Context(), []*meshv1.SessionWrite{{
		User: "u", Name: "0", Generation: 7, RemoveTopics: []string{"c"},
		Cursors: []*meshv1.SessionCursor{{Topic: "b", Epoch: 1, Floor: 12, Acked: []uint64{14, 14}, Attempts: map[uint64]uint32{13: 4}}, {Topic: "d", Epoch: 2, Floor: 3}},
	}}, now())
	need(t, err)
	generations := attachMany(t, d, 1) // of the same session: one more generation
	_, err = d.WriteCursors(t.Context(), []*meshv1.SessionWrite{{User: "u", Name: "0", Generation: generations[0], Cursors: []*meshv1.SessionCursor{{Topic: "d", Epoch: 2, Floor: 4}}}}, now())
	need(t, err)
	_, err = d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "gone", Name: "s", EdgeId: "e"}, backend.Quota{}, now())
	need(t, err)
	_, _, err = d.DeleteSession(t.Context(), "gone", "s")
	need(t, err)
	need(t, d.Close())
	_, err = steps.DownTo(t.Context(), 19)
	need(t, err)
	const want = `a 1 5 {7,8} {6} {2}, b 1 12 {14,14} {13} {4}, d 2 4 {} {} {}`
	table := func() (all string) {
		t.Helper()
		need(t, conn.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', topic, epoch, floor, acked, tried, attempts), ', ' ORDER BY topic) FROM pushmesh.cursor`).Scan(&all))
		return all
	}
	if got := table(); got != want {
		t.Errorf("after the way back: %s\nwant %s", got, want)
	}
	d = open(t, url)
	if got := floorOf(t, d, "0"); got != 5 {
		t.Errorf("floor of the first cursor after all: %d, want 5", got)
	}
	need(t, d.FoldCursors(t.Context(), backend.FoldAll))
	if got := table(); got != want {
		t.Errorf("after all: %s\nwant %s", got, want)
	}
}
