package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// migrationLock keeps stores that start together from migrating together.
const migrationLock = 0x70757368_6d657368 // "pushmesh"

// migrateLock is how long a step waits for a lock: whoever comes behind it, an append of another
// store, waits as long. It is tried again then.
const migrateLock = 500 * time.Millisecond

// migrating is a configuration of sessions that migrate.
func (s *Server) migrating(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	maps.Copy(cfg.RuntimeParams, LockTimeout(migrateLock))
	return s.session(cfg)
}

// migrate brings the schema up to date. Whoever comes second waits for the first.
func migrate(ctx context.Context, cfg *pgx.ConnConfig, log *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, BulkTimeout)
	defer cancel()
	db := stdlib.OpenDB(*cfg.Copy())
	defer func() { err = errors.Join(err, db.Close()) }()
	// Asked for every second, for as long as BulkTimeout.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(migrationLock), lock.WithLockTimeout(1, uint64(BulkTimeout.Seconds())))
	if err != nil {
		return fmt.Errorf("postgres: migrations: %w", err)
	}
	table, err := tableOfSteps(ctx, cfg)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files,
		goose.WithSessionLocker(locker), goose.WithTableName(table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("postgres: migrations: %w", err)
	}
	done, err := provider.Up(ctx)
	for _, m := range done {
		log.Info("database schema migrated", "step", m.Source.Path, "took", m.Duration)
	}
	if err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}

// steps is the name of the table of the steps that were made. It lies in whatever schema was the
// current one when it was made.
const steps = "pushmesh_migration"

// newEnough refuses a schema that says, in the table oldest_store, that stores must know a later
// step than the last one of this program. A step that takes away what older stores use makes or
// updates the table; without it the schema works with all stores since v0.1.0. Unknown steps alone
// are no fault: they only add. A role that may not read the table lacks grants, which is found
// later.
func newEnough(ctx context.Context, conn *pgx.Conn, known []int64) error {
	var readable bool
	if err := conn.QueryRow(ctx, `
		SELECT coalesce(bool_or(has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')), false)
		FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'pushmesh') AND relname = 'oldest_store'`).Scan(&readable); err != nil || !readable {
		return err
	}
	var needs int64
	if err := conn.QueryRow(ctx, `SELECT coalesce(max(step), 0) FROM pushmesh.oldest_store`).Scan(&needs); err != nil {
		return err
	}
	if last := slices.Max(known); needs > last {
		return fmt.Errorf("the database's schema is of a later version, whose stores know step %05d; this one knows steps up to %05d: "+
			"start a later version, or restore the backup from before the upgrade", needs, last)
	}
	return nil
}

// tableOfSteps names the table of steps with its schema: the current schema can be another one than
// at the first start, as the schema pushmesh comes first for a role of that name once it is there.
func tableOfSteps(ctx context.Context, cfg *pgx.ConnConfig) (string, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return "", fmt.Errorf("postgres: migrations: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	table, _, err := findSteps(ctx, conn)
	return table, err
}

// findSteps returns the table of steps, or where it is to be, and whether the role of conn may read
// it. Of several the one counts that has most steps: the others were begun where it was not found.
func findSteps(ctx context.Context, conn *pgx.Conn) (table string, readable bool, err error) {
	rows, err := conn.Query(ctx, `
		SELECT quote_ident(n.nspname), has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relname = $1 AND c.relkind = 'r' ORDER BY n.nspname`, steps)
	if err != nil {
		return "", false, fmt.Errorf("postgres: look for the table of steps: %w", err)
	}
	type place struct {
		Schema   string
		Readable bool
	}
	places, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
	if err != nil {
		return "", false, fmt.Errorf("postgres: look for the table of steps: %w", err)
	}
	most := int64(-1)
	for _, p := range places {
		name := p.Schema + "." + steps
		last := int64(-1)
		if p.Readable {
			if err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+name).Scan(&last); err != nil {
				return "", false, fmt.Errorf("postgres: look at the table of steps: %w", err)
			}
		}
		if table == "" || last > most {
			table, readable, most = name, p.Readable, last
		}
	}
	if table != "" {
		return table, readable, nil
	}
	if err := conn.QueryRow(ctx, "SELECT quote_ident(coalesce(current_schema(), 'public'))").Scan(&table); err != nil {
		return "", false, fmt.Errorf("postgres: look for the current schema: %w", err)
	}
	return table + "." + steps, false, nil
}
