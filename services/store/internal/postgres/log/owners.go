package log

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// NewEpoch takes every shard's lock for as long as it works, so that nobody owns one meanwhile.
func (l *Log) NewEpoch(ctx context.Context, epoch uint64) error {
	return l.server.Do(ctx, func(_ context.Context, conn *pgxpool.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, server.BulkTimeout)
		defer cancel()
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return newEpoch(ctx, tx, epoch) })
	})
}

func newEpoch(ctx context.Context, tx pgx.Tx, epoch uint64) error {
	if err := unowned(ctx, tx); err != nil {
		return err
	}
	var newest int64
	if err := tx.QueryRow(ctx, `SELECT greatest((SELECT max(greatest(epoch, born)) FROM pushmesh.shard), (SELECT max(born) FROM pushmesh.checkpoint_shard), (SELECT max(epoch) FROM pushmesh.topic), (SELECT max(epoch) FROM pushmesh.checkpoint_topic))`).Scan(&newest); err != nil {
		return err
	}
	if int64(epoch) <= newest {
		return fmt.Errorf("%w: epoch %d is not after %d", backend.ErrConflict, epoch, newest)
	}
	// Commit numbers go on after the old epoch's: they number what is in the log.
	var q pgx.Batch
	q.Queue(`UPDATE pushmesh.shard AS s SET epoch = $1, born = 0,
		covered = greatest(s.covered, (SELECT max(c.covered) FROM pushmesh.checkpoint_shard AS c WHERE c.shard = s.shard AND c.epoch = s.epoch),
			(SELECT max(l.commit) FROM pushmesh.log AS l WHERE l.shard = s.shard))`, int64(epoch))
	// nobody writes any
	q.Queue(`UPDATE pushmesh.checkpoint_folded SET through = nextval('pushmesh.checkpoint_id')`)
	// whoever had a shard has none of its memory to go on with
	q.Queue(`DELETE FROM pushmesh.owner`)
	q.Queue(`DELETE FROM pushmesh.topic`)
	q.Queue(`DELETE FROM pushmesh.producer`)
	q.Queue(`DELETE FROM pushmesh.mark`)
	q.Queue(`DELETE FROM pushmesh.kept`)
	// Takes of shards for claims that the server knows nothing of, in what it lost, are left room
	// for.
	q.Queue(`DELETE FROM pushmesh.claim_run`)
	q.Queue(`UPDATE pushmesh.claim_shard SET run = NULL, next = next + $1`, int64(backend.ClaimsLost*backend.ClaimNumbers))
	q.Queue(`UPDATE pushmesh.revocation_version SET version = version + $1`, int64(backend.VersionsLost))
	q.Queue(`UPDATE pushmesh.team_version SET version = version + $1, gone = version + $1`, int64(backend.VersionsLost))
	q.Queue(server.AcceptServer)
	return tx.SendBatch(ctx, &q).Close()
}
