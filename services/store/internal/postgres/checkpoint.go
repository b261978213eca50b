package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	saveShards = `UPDATE pushmesh.shard AS s SET covered = n.covered
		FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS n (shard, epoch, covered)
		WHERE s.shard = n.shard AND s.epoch = n.epoch AND s.covered < n.covered`
	saveTopics = `INSERT INTO pushmesh.topic AS t (shard, topic, epoch, head, oldest)
		SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
		ON CONFLICT (shard, topic) DO UPDATE SET epoch = excluded.epoch,
			head = CASE WHEN t.epoch = excluded.epoch THEN greatest(t.head, excluded.head) ELSE excluded.head END,
			oldest = CASE WHEN t.epoch = excluded.epoch THEN greatest(t.oldest, excluded.oldest) ELSE excluded.oldest END
		WHERE t.epoch < excluded.epoch OR t.epoch = excluded.epoch AND (t.head < excluded.head OR t.oldest < excluded.oldest)`
	saveProducers = `INSERT INTO pushmesh.producer AS p (shard, topic, producer, producer_seq, epoch, seq, at)
		SELECT * FROM unnest($1::int[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
		ON CONFLICT (shard, topic, producer) DO UPDATE
			SET producer_seq = excluded.producer_seq, epoch = excluded.epoch, seq = excluded.seq, at = excluded.at
		WHERE p.epoch < excluded.epoch OR p.epoch = excluded.epoch AND p.producer_seq < excluded.producer_seq`
	dropMarks = `DELETE FROM pushmesh.mark AS m USING unnest($1::int[], $2::bigint[]) AS n (shard, covered)
		WHERE m.shard = n.shard AND m.commit <= n.covered`
	forgetProducers = `DELETE FROM pushmesh.producer WHERE shard = ANY($1) AND at < $2`
)

// Checkpoint writes in one transaction on the writer's own connection, so that only an owner can.
func (w *writer) Checkpoint(ctx context.Context, c *backend.Checkpoint) error {
	return w.use(ctx, bulkTimeout, func(ctx context.Context) error {
		for _, s := range c.Shards {
			if err := w.requires(s.Shard); err != nil {
				return err
			}
		}
		return pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) error {
			var q pgx.Batch
			queueTopics(&q, c.Topics)
			if len(c.Producers) > 0 {
				p := producerColumns(c.Producers)
				q.Queue(saveProducers, p.shards, p.topics, p.ids, p.numbers, p.epochs, p.seqs, p.ats)
			}
			queueShards(&q, c.Shards)
			if c.ForgetBefore > 0 {
				q.Queue(forgetProducers, w.shards(), int64(c.ForgetBefore))
			}
			if q.Len() == 0 {
				return nil
			}
			return tx.SendBatch(ctx, &q).Close()
		})
	})
}

func (w *writer) shards() (all []int32) {
	for s := range w.owned {
		all = append(all, int32(s))
	}
	return all
}

func queueShards(q *pgx.Batch, all []backend.Shard) {
	if len(all) == 0 {
		return
	}
	var shards []int32
	var epochs, covered []int64
	for _, s := range all {
		shards, epochs, covered = append(shards, int32(s.Shard)), append(epochs, int64(s.Epoch)), append(covered, int64(s.Commit))
	}
	q.Queue(saveShards, shards, epochs, covered)
	q.Queue(dropMarks, shards, covered)
}

func queueTopics(q *pgx.Batch, all []backend.Topic) {
	if len(all) == 0 {
		return
	}
	n := len(all)
	shards, names := make([]int32, n), make([]string, n)
	epochs, heads, oldest := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, t := range all {
		shards[i], names[i], epochs[i], heads[i], oldest[i] = int32(t.Shard), t.Topic, int64(t.Epoch), int64(t.Head), int64(t.Oldest)
	}
	q.Queue(saveTopics, shards, names, epochs, heads, oldest)
}

// columns of producers.
type columns struct {
	shards                     []int32
	topics                     []string
	ids                        [][16]byte
	numbers, epochs, seqs, ats []int64
}

func producerColumns(all []backend.Producer) (c columns) {
	for _, p := range all {
		c.shards, c.topics, c.ids = append(c.shards, int32(p.Shard)), append(c.topics, p.Topic), append(c.ids, p.ID)
		c.numbers, c.epochs = append(c.numbers, int64(p.ProducerSeq)), append(c.epochs, int64(p.Epoch))
		c.seqs, c.ats = append(c.seqs, int64(p.Seq)), append(c.ats, int64(p.At))
	}
	return c
}
