// Package disk runs a private Postgres whose commits are on this machine's disk when they are
// answered.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// settings of the server that are an operator's to choose; commits are fsynced whatever they are.
var settings = []string{"shared_buffers=1GB", "max_wal_size=4GB", "min_wal_size=1GB", "wal_buffers=64MB", "wal_compression=lz4"}

// segments of 16 MiB are min_wal_size: what a server keeps for use again.
const segments = 64

// Postgres is a server of its own.
type Postgres struct {
	server *pgserver.Server
	dir    string
	// Settings that matter for what is measured.
	Settings string
}

// Start starts a server and makes it as one that was up for a while.
func Start(ctx context.Context) (_ *Postgres, err error) {
	defer try.Catch(&err)
	dir := try.Get(pgserver.TempDir(""))
	d := &Postgres{dir: dir}
	if d.server, err = pgserver.Start(dir, 0, settings...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := errors.Join(d.check(ctx), d.age(ctx)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// age gives the server segments of its log to use again, as one has that was up for a while. A new
// server makes a segment each time that one is full, which writes 16 MiB of zeros and fsyncs them
// while every commit waits.
func (d *Postgres) age(ctx context.Context) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, d.server.Superuser()))
	defer func() { _ = conn.Close(ctx) }()
	for range segments {
		// there is nothing to switch from otherwise
		try.Get(conn.Exec(ctx, "SELECT pg_logical_emit_message(false, 'age', '')"))
		try.Get(conn.Exec(ctx, "SELECT pg_switch_wal()"))
	}
	try.Get(conn.Exec(ctx, "CHECKPOINT"))
	kept := 0
	try.Do(conn.QueryRow(ctx, "SELECT count(*) FROM pg_ls_waldir()").Scan(&kept))
	if kept < segments/2 {
		return fmt.Errorf("the server keeps %d segments of its log of %d", kept, segments)
	}
	return nil
}

// check says how the server is set, and refuses one whose commits are not on the disk when they are
// answered.
func (d *Postgres) check(ctx context.Context) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, d.server.Superuser()))
	defer func() { _ = conn.Close(ctx) }()
	var said []string
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "min_wal_size", "wal_buffers", "wal_compression", "checkpoint_timeout"} {
		var value string
		try.Do(conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value))
		if (name == "fsync" || name == "synchronous_commit" || name == "full_page_writes") && value != "on" {
			return fmt.Errorf("%s is %s: nothing measured here would count", name, value)
		}
		said = append(said, name+"="+value)
	}
	d.Settings = strings.Join(said, " ")
	return nil
}

// Exec runs SQL in a database.
func (d *Postgres) Exec(ctx context.Context, url, sql string) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, url))
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Query reads one row from a database.
func (d *Postgres) Query(ctx context.Context, url, sql string, into ...any) (err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, url))
	defer func() { _ = conn.Close(ctx) }()
	return conn.QueryRow(ctx, sql).Scan(into...)
}

// Fresh makes an empty database.
func (d *Postgres) Fresh() (url string, err error) { return pgserver.Database(d.server.Superuser()) }

// Drop ends a database that is of no more use, so that the disk doesn't fill up.
func (d *Postgres) Drop(ctx context.Context, url string) (err error) {
	defer try.Catch(&err)
	cfg := try.Get(pgx.ParseConfig(url))
	return d.Exec(ctx, d.server.Superuser(), "DROP DATABASE "+pgx.Identifier{cfg.Database}.Sanitize()+" WITH (FORCE)")
}

// Checkpoint has what lies in memory written.
func (d *Postgres) Checkpoint(ctx context.Context) error {
	return d.Exec(ctx, d.server.Superuser(), "CHECKPOINT")
}

// Close ends the server and removes what it had.
func (d *Postgres) Close() error { return errors.Join(d.server.Kill(), os.RemoveAll(d.dir)) }

// PIDs of every process of the server.
func (d *Postgres) PIDs() (_ []int, err error) {
	defer try.Catch(&err)
	b := try.Get(os.ReadFile(filepath.Join(d.dir, "data", "postmaster.pid")))
	first, _, _ := strings.Cut(string(b), "\n")
	pid := try.Get(strconv.Atoi(first))
	children, err := procfs.Children(pid)
	return append(children, pid), err
}
