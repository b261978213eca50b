package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// Where there is always a commit under way that takes as long as over a far standby, a store whose
// role does not own the log can't detach an old slice, for other commits would wait. Its space
// comes back, and the slice goes once there is a moment for it.
func TestSlowCommitsKeepNoSpaceFromARoleWithoutDDL(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	wire := &pgtest.Wire{}
	d := openWith(t, Config{URL: pgtest.Another(t, owner), OwnerURL: owner, Dial: wire.Dial, Patience: backendtest.Patience})
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	old := batch(3, h.epoch[3], 1)
	old.Runs[0].At = now() - uint64((3 * 24 * time.Hour).Microseconds())
	need(t, w.Commit(t.Context(), old))
	table := "log_" + old.Runs[0].Class.String()
	conn, err := pgx.Connect(t.Context(), owner)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	kept := func() (slices int, bytes int64) {
		t.Helper()
		need(t, conn.QueryRow(t.Context(), `SELECT count(*), coalesce(sum(pg_relation_size(oid)), 0)::bigint FROM pg_class
			WHERE relnamespace = 'pushmesh'::regnamespace AND relkind = 'r' AND relname ~ ('^' || $1 || '_[0-9]+$')`, table).Scan(&slices, &bytes))
		return slices, bytes
	}
	before, bytes := kept()
	if bytes == 0 {
		t.Fatal("the old slice has nothing")
	}
	begun := false
	wire.Judge(func(s pgtest.Statement) pgtest.Fate {
		if strings.Contains(s.SQL, "pushmesh.detach_slice") && !begun {
			begun = true
			_, err = conn.Exec(t.Context(), `BEGIN; LOCK TABLE ONLY pushmesh.`+table+` IN ROW EXCLUSIVE MODE`)
			need(t, err)
		}
		return pgtest.Pass
	})
	_, err = d.DropSlices(t.Context(), now())
	need(t, err)
	if slices, bytes := kept(); !begun || slices != before || bytes != 0 {
		t.Errorf("beside a commit %d of %d slices are left, with %d bytes", slices, before, bytes)
	}
	_, err = conn.Exec(t.Context(), `COMMIT`)
	need(t, err)
	_, err = d.DropSlices(t.Context(), now())
	need(t, err)
	if slices, _ := kept(); slices != before-1 {
		t.Errorf("after it %d of %d slices are left", slices, before)
	}
}
