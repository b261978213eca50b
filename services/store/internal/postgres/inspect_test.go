package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

func TestInspect(t *testing.T) {
	d := open(t, pgtest.URL(t))
	all := d.Inspect(t.Context())
	if len(all) != 1 || all[0].GetProblem() != "" || all[0].GetKind() != "postgres" || all[0].GetName() != Home {
		t.Fatalf("%v", all)
	}
	i := all[0]
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit", "max_connections", "min_wal_size", "server_version"} {
		if i.GetSettings()[name] == "" {
			t.Errorf("%s is not told", name)
		}
	}
	if i.GetConnections() == 0 || i.GetStoreConnections() < 20 || i.GetPooler() != meshv1.InspectedDatabase_POOLER_NONE {
		t.Errorf("%v", i)
	}
	if i.GetServer().GetSystem() == 0 || i.GetServer().String() != i.GetAccepted().String() || i.GetSeesOthers() || i.GetDistrust() != "" {
		t.Errorf("of a server that is accepted, to an ordinary role: %v", i)
	}
	need(t, d.Close())
	if gone := d.Inspect(t.Context())[0]; gone.GetProblem() == "" || len(gone.GetSettings()) > 0 {
		t.Errorf("a database that is closed: %v", gone)
	}
}

// A store says how many locks it may need: one that reads the log locks no more than that for each
// of its connections, and not much less.
func TestInspectCountsLocks(t *testing.T) {
	d := openWith(t, Config{URL: pgtest.URL(t), Pool: Pool{Max: 20, Reads: 20}})
	need(t, d.MakeSlices(t.Context(), now()))
	told := d.Inspect(t.Context())[0]
	each := int(told.GetStoreLocks()) / 22 // of 20 that read, and two that fold
	var tables int
	err := d.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT topic FROM pushmesh.log WHERE topic = $1 AND epoch = $2 AND last_seq >= $3 ORDER BY last_seq LIMIT 8`, "a", 1, 1)
		if err != nil {
			return err
		}
		rows.Close()
		var locks int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'
			AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'pushmesh'::regnamespace)`).Scan(&locks); err != nil {
			return err
		}
		if locks > each || locks < each/2 {
			t.Errorf("a statement that reads the log holds %d locks, %d are counted", locks, each)
		}
		return tx.QueryRow(ctx, `SELECT count(*) FROM pg_tables WHERE schemaname = 'pushmesh'`).Scan(&tables)
	})
	need(t, err)
	if int(told.GetTables()) != tables || tables < 40 {
		t.Errorf("%d tables, %d are told", tables, told.GetTables())
	}
}
