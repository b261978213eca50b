package log

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Owners reads the record; the locks are what counts.
func (l *Log) Owners(ctx context.Context) ([]backend.Ownership, error) {
	return server.QueryAs(ctx, l.server, dbgate.Vital, scanOwnership, `SELECT shard, store_id, incarnation, address FROM pushmesh.owner ORDER BY shard`)
}

func scanOwnership(row pgx.CollectableRow) (o backend.Ownership, err error) {
	var incarnation int64
	err = row.Scan(&o.Shard, &o.StoreID, &incarnation, &o.Address)
	o.Incarnation = uint64(incarnation)
	return o, err
}

// Fence terminates the backends of an incarnation and waits until they are gone: with them go their
// locks.
func (l *Log) Fence(ctx context.Context, storeID string, incarnation uint64) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		live, err := server.QueryAs(ctx, l.server, dbgate.Vital, pgx.RowTo[bool], `
			SELECT a.backend_start IS NOT NULL AND pg_terminate_backend(a.pid) FROM pushmesh.writer AS w
			JOIN pg_stat_activity AS a ON `+server.SameBackend+`
			WHERE w.store_id = $1 AND w.incarnation = $2`, storeID, int64(incarnation))
		if err != nil {
			return fmt.Errorf("postgres: fence %s: %w", storeID, err)
		}
		if len(live) == 0 {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("postgres: fence %s: %d backends still run: %w", storeID, len(live), ctx.Err())
		}
	}
	return l.server.TxAs(ctx, dbgate.Vital, func(ctx context.Context, tx pgx.Tx) error {
		var q pgx.Batch
		q.Queue(`DELETE FROM pushmesh.writer AS w WHERE store_id = $1 AND incarnation = $2 AND NOT EXISTS (
			SELECT FROM pg_stat_activity AS a WHERE `+server.SameBackend+`)`, storeID, int64(incarnation))
		// A shard that is locked was claimed again meanwhile.
		q.Queue(`DELETE FROM pushmesh.owner WHERE store_id = $1 AND incarnation = $2 AND shard NOT IN (
			SELECT objid::int FROM pg_locks WHERE locktype = 'advisory' AND classid = $3 AND objsubid = 2
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`, storeID, int64(incarnation), uint32(LockClass))
		return tx.SendBatch(ctx, &q).Close()
	})
}
