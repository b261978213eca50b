package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// gathered is a metric of Postgres by its name and the value of its label; -1: it is not told.
func gathered(t *testing.T, r *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := r.Gather()
	need(t, err)
	for _, f := range families {
		if f.GetName() != "pushmesh_store_postgres_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); len(labels) == 0 || labels[0].GetValue() == label {
				if f.GetType() == dto.MetricType_COUNTER {
					return m.GetCounter().GetValue()
				}
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// snapshot opens a transaction that keeps the dead from being removed, until the test ends or end
// is called.
func snapshot(t *testing.T, url, question string) (end func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	need(t, err)
	_, err = tx.Exec(t.Context(), question)
	need(t, err)
	return func() { need(t, tx.Rollback(context.Background())) }
}

// What grows is measured as an ordinary role, and more of it with pg_monitor; nothing is told
// before it is known.
func TestGrowthIsMeasured(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	r := prometheus.NewRegistry()
	d := openWith(t, Config{URL: pg.URL(), Registry: r, Patience: backendtest.Patience})
	if v := gathered(t, r, "wal_written_bytes_total", ""); v != -1 {
		t.Errorf("before anything is measured: %v", v)
	}
	need(t, d.MakeSlices(t.Context(), now()))
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	need(t, w.Commit(t.Context(), batch(3, h.epoch[3], 1)))
	need(t, d.Measure(t.Context()))
	written := gathered(t, r, "wal_written_bytes_total", "")
	if table := gathered(t, r, "table_bytes", "log_day"); table < 8192 || written < 1<<20 {
		t.Errorf("the log has %v bytes, and the server has written %v", table, written)
	}
	if dead := gathered(t, r, "dead_rows", ""); dead < 0 {
		t.Error("dead rows are not told")
	}
	end := snapshot(t, pg.Superuser(), `SELECT count(*) FROM pushmesh.log`)
	defer end()
	execute(t, pg.Superuser(), `SELECT pg_create_physical_replication_slot('backup', true)`)
	need(t, w.Commit(t.Context(), batch(3, h.epoch[3], 2)))
	need(t, d.Measure(t.Context()))
	if more := gathered(t, r, "wal_written_bytes_total", ""); more <= written {
		t.Errorf("after a commit %v bytes are written, before it were %v", more, written)
	}
	if kept := gathered(t, r, "slot_kept_bytes", "backup"); kept <= 0 {
		t.Errorf("a slot keeps %v bytes", kept)
	}
	if sees, files := gathered(t, r, "sees_other_roles", ""), gathered(t, r, "wal_kept_bytes", ""); sees != 0 || files != -1 {
		t.Errorf("an ordinary role sees others: %v, and files: %v", sees, files)
	}
	if old := gathered(t, r, "oldest_snapshot_seconds", ""); old != 0 {
		t.Errorf("an ordinary role sees a snapshot of %v s, which is a superuser's", old)
	}
	execute(t, pg.Superuser(), `GRANT pg_monitor TO `+pgserver.Owner)
	need(t, d.Measure(t.Context()))
	if sees, files := gathered(t, r, "sees_other_roles", ""), gathered(t, r, "wal_kept_bytes", ""); sees != 1 || files < 1<<20 {
		t.Errorf("with pg_monitor it sees others: %v, and files: %v", sees, files)
	}
	if old := gathered(t, r, "oldest_snapshot_seconds", ""); old <= 0 {
		t.Errorf("with pg_monitor the oldest snapshot is of %v s", old)
	}
}

// Who has a table for himself makes sizes as old as his lock, and holds nobody up.
func TestALockedTableIsMeasuredLater(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	r := prometheus.NewRegistry()
	d := openWith(t, Config{URL: url, Registry: r, Patience: backendtest.Patience})
	need(t, d.MakeSlices(t.Context(), now()))
	need(t, d.Measure(t.Context()))
	before, written := gathered(t, r, "table_bytes", "session"), gathered(t, r, "wal_written_bytes_total", "")
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	tx, err := conn.Begin(t.Context())
	need(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE pushmesh.session IN ACCESS EXCLUSIVE MODE`)
	need(t, err)
	execute(t, url, `CREATE TABLE something AS SELECT generate_series(1, 1000)`)
	need(t, d.Measure(t.Context()))
	if now := gathered(t, r, "table_bytes", "session"); now != before || before <= 0 {
		t.Errorf("a table that is locked has %v bytes, %v before", now, before)
	}
	if now := gathered(t, r, "wal_written_bytes_total", ""); now <= written {
		t.Errorf("the write-ahead log has %v bytes, %v before", now, written)
	}
	need(t, tx.Rollback(t.Context()))
}

// Slices that can't be dropped are counted by what keeps them, until they are gone.
func TestSlicesThatAreHeldAreCounted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	r := prometheus.NewRegistry()
	d := openWith(t, Config{URL: url, Registry: r, Patience: backendtest.Patience})
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	for i := range uint64(2) { // of two days
		old := batch(3, h.epoch[3], i+1)
		old.Runs[0].At = now() - (3+i)*uint64((24*time.Hour).Microseconds())
		need(t, w.Commit(t.Context(), old))
	}
	held := func() (reader, behind float64) {
		t.Helper()
		if _, err := d.DropSlices(t.Context(), now()); err != nil {
			t.Errorf("drop: %v", err)
		}
		return gathered(t, r, "slices_held", "reader"), gathered(t, r, "slices_held", "behind")
	}
	end := snapshot(t, url, `SELECT count(*) FROM pushmesh.log`)
	if reader, behind := held(); reader != 1 || behind < 1 {
		t.Errorf("beside a reader %v slices are held by it, %v behind them", reader, behind)
	}
	end()
	for deadline := time.Now().Add(backendtest.Patience); ; {
		if reader, behind := held(); reader == 0 && behind == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("slices are held after their reader has ended")
		}
	}
	if late := gathered(t, r, "slices_held", "late_messages"); late != 0 {
		t.Errorf("%v are held by messages that are due", late)
	}
}
