package log

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// When checkpoints are packed; they are folded as often as cursors.
const (
	packCheckpoints = 500
	// checkpointParts is in how many pieces checkpoints are folded, by shard.
	checkpointParts = 16
)

// The newest of what lies in pages below an id, $1, of shards whose number leaves the rest $3 when
// divided by $2.
const (
	newestTopics = `SELECT DISTINCT ON (shard, topic) shard, topic, epoch, max(head) AS head, max(oldest) AS oldest
		FROM pushmesh.checkpoint_topic WHERE id < $1 AND shard % $2 = $3 GROUP BY shard, topic, epoch ORDER BY shard, topic, epoch DESC`
	newestProducers = `SELECT DISTINCT ON (shard, topic, producer) shard, topic, producer, producer_seq, epoch, seq, at
		FROM pushmesh.checkpoint_producer WHERE id < $1 AND shard % $2 = $3 AND at >= ` + forgotten + `[shard + 1]
		ORDER BY shard, topic, producer, epoch DESC, producer_seq DESC`
	newestShards = `SELECT DISTINCT ON (shard) shard, epoch, max(covered) AS covered, max(forgot) AS forgot, max(born) AS born
		FROM pushmesh.checkpoint_shard WHERE id < $1 AND shard % $2 = $3 GROUP BY shard, epoch ORDER BY shard, epoch DESC`
	// forgotten has for each shard, from 0 on, the time before which its positions are forgotten:
	// an array, made once for a statement.
	forgotten = `(SELECT array_agg(greatest(s.forgot, g.forgot) ORDER BY s.shard) FROM pushmesh.shard AS s
		LEFT JOIN (SELECT shard, max(forgot) AS forgot FROM pushmesh.checkpoint_shard GROUP BY shard) AS g USING (shard))`
)

// Folding: into the tables that have a row for each. A topic that was forgotten has none: pages
// that have an earlier state of it are void as soon as the one that forgets it is.
const (
	foldTopics = `WITH newest AS MATERIALIZED (` + newestTopics + `),
		gone AS (DELETE FROM pushmesh.topic AS t USING newest AS n
			WHERE n.head = 0 AND t.shard = n.shard AND t.topic = n.topic AND (t.epoch < n.epoch OR t.head = 0))
		INSERT INTO pushmesh.topic AS t (shard, topic, epoch, head, oldest) SELECT * FROM newest WHERE head > 0
		ON CONFLICT (shard, topic) DO UPDATE SET epoch = excluded.epoch, at = excluded.at,
			head = CASE WHEN t.epoch = excluded.epoch THEN greatest(t.head, excluded.head) ELSE excluded.head END,
			oldest = CASE WHEN t.epoch = excluded.epoch THEN greatest(t.oldest, excluded.oldest) ELSE excluded.oldest END
		WHERE t.epoch < excluded.epoch OR t.epoch = excluded.epoch AND (t.head < excluded.head OR t.oldest < excluded.oldest)`
	foldProducers = `INSERT INTO pushmesh.producer AS p (shard, topic, producer, producer_seq, epoch, seq, at) ` + newestProducers + `
		ON CONFLICT (shard, topic, producer) DO UPDATE
			SET producer_seq = excluded.producer_seq, epoch = excluded.epoch, seq = excluded.seq, at = excluded.at
		WHERE p.epoch < excluded.epoch OR p.epoch = excluded.epoch AND p.producer_seq < excluded.producer_seq`
	foldShards = `UPDATE pushmesh.shard AS s SET covered = greatest(s.covered, n.covered), forgot = greatest(s.forgot, n.forgot), born = greatest(s.born, n.born) FROM (` + newestShards + `) AS n
		WHERE s.shard = n.shard AND s.epoch = n.epoch AND (s.covered < n.covered OR s.forgot < n.forgot OR s.born < n.born)`
	dropForgotten = `DELETE FROM pushmesh.producer AS p USING pushmesh.shard AS s WHERE p.shard = s.shard AND p.at < s.forgot`
	dropMarks     = `DELETE FROM pushmesh.mark AS m USING (` + newestShards + `) AS n
		WHERE m.shard = n.shard AND m.commit <= n.covered`
)

// Packing: into new pages of 500. A page has columns for all three kinds; those of the others are
// empty.
const (
	noTopics     = `'{}'::int[], '{}'::text[], '{}'::bigint[], '{}'::bigint[], '{}'::bigint[]`
	noProducers  = `'{}'::int[], '{}'::text[], '{}'::uuid[], '{}'::bigint[], '{}'::bigint[], '{}'::bigint[], '{}'::bigint[]`
	noShards     = `'{}'::int[], '{}'::bigint[], '{}'::bigint[], '{}'::bigint[], '{}'::bigint[]`
	nextPage     = `INSERT INTO pushmesh.checkpoint SELECT nextval('pushmesh.checkpoint_id'), `
	numbered     = ` FROM (SELECT n.*, (row_number() OVER () - 1) / 500 AS page FROM (`
	byPage       = `) AS n) AS n GROUP BY page`
	packTopics   = nextPage + `0, array_agg(shard), array_agg(topic), array_agg(epoch), array_agg(head), array_agg(oldest), ` + noProducers + `, ` + noShards + numbered + newestTopics + byPage
	packProducer = nextPage + `0, ` + noTopics + `, array_agg(shard), array_agg(topic), array_agg(producer), array_agg(producer_seq), array_agg(epoch), array_agg(seq), array_agg(at), ` +
		noShards + numbered + newestProducers + byPage
	packShards = nextPage + `0, ` + noTopics + `, ` + noProducers + `, coalesce(array_agg(shard), '{}'), coalesce(array_agg(epoch), '{}'), coalesce(array_agg(covered), '{}'), coalesce(array_agg(forgot), '{}'),
		coalesce(array_agg(born), '{}') FROM (` + newestShards + `) AS n`
)

// FoldCheckpoints packs pages of checkpoints, and puts them into their tables where no old snapshot
// keeps dead rows. One store does it at a time.
func (l *Log) FoldCheckpoints(ctx context.Context, how backend.Fold) error {
	// Who wants all of it does so for what comes next.
	return partition.Checkpoints.Alone(ctx, l.server, how == backend.FoldAll, func(conn *pgx.Conn) error {
		l.tally.Lock()
		defer l.tally.Unlock()
		return l.foldCheckpoints(ctx, conn, how)
	})
}

func (l *Log) foldCheckpoints(ctx context.Context, conn *pgx.Conn, how backend.Fold) error {
	now, fold := time.Now(), how == backend.FoldAll
	if how == backend.FoldDue {
		pack, foldable, err := partition.Checkpoints.Due(ctx, conn, &l.tally, packCheckpoints, l.server.Config.Fold, now)
		if err != nil || !pack && !foldable {
			return err
		}
		fold = foldable
	}
	through, ok, err := partition.Checkpoints.Cut(ctx, conn)
	for how == backend.FoldAll && err == nil && !ok && server.Pause(ctx, 0) {
		through, ok, err = partition.Checkpoints.Cut(ctx, conn)
	}
	if err != nil || !ok {
		return err
	}
	if fold {
		err = foldPages(ctx, conn, through)
	} else {
		err = l.packPages(ctx, conn, through)
	}
	if err != nil {
		return fmt.Errorf("postgres: fold checkpoints: %w", err)
	}
	return partition.Checkpoints.Done(ctx, conn, &l.tally, fold, now)
}

// foldPages goes by shards, a transaction each. Done again after an interruption it changes nothing
// twice.
func foldPages(ctx context.Context, conn *pgx.Conn, through int64) error {
	for part := range checkpointParts {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var b pgx.Batch
			for _, sql := range []string{foldTopics, foldProducers, foldShards, dropMarks} {
				// a shard's number once its topics are there
				b.Queue(sql, through, checkpointParts, part)
			}
			return tx.SendBatch(ctx, &b).Close()
		})
		if err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, dropForgotten); err != nil {
		return err
	}
	return partition.Checkpoints.Void(ctx, conn, through)
}

// packPages writes the newest of all into new pages, in one transaction with what lets go of the
// others.
func (l *Log) packPages(ctx context.Context, conn *pgx.Conn, through int64) error {
	return l.partitions.Append(ctx, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var b pgx.Batch
			for _, sql := range []string{packTopics, packProducer, packShards} {
				b.Queue(sql, through, 1, 0)
			}
			if err := tx.SendBatch(ctx, &b).Close(); err != nil {
				return err
			}
			return partition.Checkpoints.Void(ctx, tx, through)
		})
	})
}
