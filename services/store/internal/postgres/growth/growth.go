// Package growth measures what of a Postgres database grows, and what keeps it from shrinking:
// tables, the write-ahead log, old snapshots, and slices that are over and can't be dropped.
package growth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

const (
	// patience bounds all of a round's questions, lockPatience how long one waits for a table that
	// somebody has to himself.
	patience     = 5 * time.Second
	lockPatience = 100 * time.Millisecond
	// fresh is how long figures are told: another store may measure since, or nobody.
	fresh = 3 * time.Minute
)

// Growth of a database. Its figures are those of the last Measure, so that a scrape asks nobody.
type Growth struct {
	server     *server.Server
	partitions *partition.Partitions
	now        func() time.Time

	mu   sync.Mutex
	last figures
}

// figures of a round.
type figures struct {
	at       time.Time
	tables   map[string]int64 // bytes, with indexes and what is stored beside
	dead     int64            // rows
	written  float64          // bytes of the log, since the cluster was made
	kept     int64            // bytes of the log's files; -1: the role may not see that
	slots    map[string]int64 // bytes of the log that each replication slot keeps
	snapshot time.Duration    // age of the oldest
	others   bool             // snapshots of other roles are seen
	monitor  bool             // and the log's files
}

// New registers metrics, where there is a registry.
func New(s *server.Server, p *partition.Partitions) (*Growth, error) {
	g := &Growth{server: s, partitions: p, now: time.Now}
	return g, s.AddMetrics(g)
}

// Close takes the metrics back.
func (g *Growth) Close() error {
	g.server.RemoveMetrics(g)
	return nil
}

// Measure asks the server, on a connection of the pool and for seconds at most.
func (g *Growth) Measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f := figures{tables: map[string]int64{}, slots: map[string]int64{}}
	err := g.server.TxAs(ctx, dbgate.Small, func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(f.readLog(ctx, tx), f.readSnapshots(ctx, tx))
	})
	if err != nil {
		return fmt.Errorf("measure the database: %w", err)
	}
	err = g.server.TxAs(ctx, dbgate.Small, f.readTables)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && server.SQLState(err) != server.LockNotAvailable {
		return fmt.Errorf("measure the database: %w", err)
	}
	if err != nil { // somebody rewrites a table: sizes are as of the last round
		f.tables = g.last.tables
	}
	f.at = g.now()
	g.last = f
	return nil
}

// readTables adds slices up, by the table that they are of.
func (f *figures) readTables(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, lockPatience.Milliseconds())); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT regexp_replace(relname, '_[0-9]+$', ''), sum(pg_total_relation_size(oid))::bigint
		FROM pg_class WHERE relnamespace = 'pushmesh'::regnamespace AND relkind = 'r' GROUP BY 1`)
	var name string
	var bytes *int64 // of what was dropped meanwhile there is none
	return server.Each(rows, err, []any{&name, &bytes}, func() {
		if bytes != nil {
			f.tables[name] = *bytes
		}
	})
}

func (f *figures) readLog(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8,
		(SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_all_tables WHERE schemaname = 'pushmesh'),
		pg_has_role('pg_read_all_stats', 'USAGE'), pg_has_role('pg_monitor', 'USAGE')`).Scan(&f.written, &f.dead, &f.others, &f.monitor)
	if err != nil {
		return err
	}
	f.kept = -1
	if f.monitor {
		if err := tx.QueryRow(ctx, `SELECT sum(size)::bigint FROM pg_ls_waldir()`).Scan(&f.kept); err != nil {
			return err
		}
	}
	rows, err := tx.Query(ctx, `SELECT slot_name, greatest(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn), 0)::bigint
		FROM pg_replication_slots WHERE restart_lsn IS NOT NULL AND NOT temporary`)
	var slot string
	var bytes int64
	return server.Each(rows, err, []any{&slot, &bytes}, func() { f.slots[slot] = bytes })
}

// readSnapshots asks for the oldest thing that keeps dead rows from being removed: a transaction
// that has a snapshot, or one that is prepared.
func (f *figures) readSnapshots(ctx context.Context, tx pgx.Tx) error {
	var seconds float64
	err := tx.QueryRow(ctx, `SELECT greatest(
		(SELECT extract(epoch FROM clock_timestamp() - min(xact_start)) FROM pg_stat_activity
			WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND backend_type <> 'autovacuum worker' AND pid <> pg_backend_pid()),
		(SELECT extract(epoch FROM clock_timestamp() - min(prepared)) FROM pg_prepared_xacts), 0)::float8`).Scan(&seconds)
	f.snapshot = time.Duration(seconds * float64(time.Second))
	return err
}

// Reasons of Held, all of which have a figure.
var reasons = []string{partition.HeldByReader, partition.HeldByLateMessages, partition.HeldBehind}

// Describe makes Growth a prometheus.Collector.
func (g *Growth) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{tableDesc, deadDesc, writtenDesc, keptDesc, slotDesc, snapshotDesc, othersDesc, heldDesc} {
		out <- d
	}
}

// Collect makes Growth a prometheus.Collector.
func (g *Growth) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	f := g.last
	g.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if held, at := g.partitions.Held(); g.now().Sub(at) < fresh {
		for _, reason := range reasons {
			gauge(heldDesc, float64(held[reason]), reason)
		}
	}
	if g.now().Sub(f.at) >= fresh {
		return
	}
	for name, bytes := range f.tables {
		gauge(tableDesc, float64(bytes), name)
	}
	gauge(deadDesc, float64(f.dead))
	out <- prometheus.MustNewConstMetric(writtenDesc, prometheus.CounterValue, f.written)
	if f.kept >= 0 {
		gauge(keptDesc, float64(f.kept))
	}
	for slot, bytes := range f.slots {
		gauge(slotDesc, float64(bytes), slot)
	}
	gauge(snapshotDesc, f.snapshot.Seconds())
	others := 0.0
	if f.others {
		others = 1
	}
	gauge(othersDesc, others)
}

var (
	tableDesc = prometheus.NewDesc("pushmesh_store_postgres_table_bytes",
		"Bytes of each table of the schema with its slices, indexes and what is stored beside. Measured every 15 s by the store that keeps the database in order, as are all figures of growth.", []string{"table"}, nil)
	deadDesc    = prometheus.NewDesc("pushmesh_store_postgres_dead_rows", "Rows of the schema's tables that are dead and take up room, as the server estimates them.", nil, nil)
	writtenDesc = prometheus.NewDesc("pushmesh_store_postgres_wal_written_bytes_total", "Bytes that the server, with all of its databases, has written to its write-ahead log since it was made.", nil, nil)
	keptDesc    = prometheus.NewDesc("pushmesh_store_postgres_wal_kept_bytes", "Bytes of the files of the server's write-ahead log; not there unless the stores' role is a member of pg_monitor.", nil, nil)
	slotDesc    = prometheus.NewDesc("pushmesh_store_postgres_slot_kept_bytes",
		"Bytes of the write-ahead log that a replication slot keeps from being removed.", []string{"slot"}, nil)
	snapshotDesc = prometheus.NewDesc("pushmesh_store_postgres_oldest_snapshot_seconds",
		"Age of the oldest transaction that keeps dead rows from being removed; of the stores' own role alone, unless it is a member of pg_monitor.", nil, nil)
	othersDesc = prometheus.NewDesc("pushmesh_store_postgres_sees_other_roles", "1 where the stores' role sees what connections of other roles do (pg_monitor), else 0.", nil, nil)
	heldDesc   = prometheus.NewDesc("pushmesh_store_postgres_slices_held",
		"Slices whose time is over and that could not be dropped in the last round, by reason: reader, a transaction uses the table; late_messages, scheduled messages that are overdue are in it; behind, another slice of the table waits.", []string{"reason"}, nil)
)
