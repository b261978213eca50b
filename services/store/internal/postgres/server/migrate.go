package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// migrationLock keeps stores that start together from migrating together.
const migrationLock = 0x70757368_6d657368 // "pushmesh"

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
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files,
		goose.WithSessionLocker(locker), goose.WithTableName("pushmesh_migration"), goose.WithDisableGlobalRegistry(true))
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
