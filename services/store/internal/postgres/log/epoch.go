package log

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

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

// AcceptServer accepts the server, and with an epoch above 0 begins it: both or neither.
func (l *Log) AcceptServer(ctx context.Context, epoch uint64) (a backend.Accepted, err error) {
	err = l.server.Do(ctx, func(_ context.Context, conn *pgxpool.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, server.BulkTimeout)
		defer cancel()
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			a, err = acceptServer(ctx, tx, epoch)
			return err
		})
	})
	return a, err
}

func acceptServer(ctx context.Context, tx pgx.Tx, epoch uint64) (a backend.Accepted, err error) {
	var before, after int64
	// who comes second waits here, and finds nothing to accept
	err = tx.QueryRow(ctx, `SELECT s.system, s.timeline, t.system, t.timeline FROM pushmesh.server AS s, pushmesh.this_server() AS t FOR UPDATE OF s`).
		Scan(&before, &a.Before.Timeline, &after, &a.After.Timeline)
	if err != nil {
		return a, fmt.Errorf("postgres: which server: %w", err)
	}
	a.Before.System, a.After.System = uint64(before), uint64(after)
	switch {
	case a.Before == a.After:
		return a, fmt.Errorf("%w: there is nothing to accept: this is the server that the log was written on last (system %d, timeline %d). "+
			"Where it has an older copy of the database nevertheless, stop all stores and start one with --new-epoch", backend.ErrConflict, a.After.System, a.After.Timeline)
	case epoch == 0:
		_, err := tx.Exec(ctx, server.AcceptServer)
		return a, err
	}
	a.Shards = topic.Shards
	return a, newEpoch(ctx, tx, epoch)
}
