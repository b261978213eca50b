package log

import (
	"context"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const insertCheckpoint = `INSERT INTO pushmesh.checkpoint (id, forget, topic_shards, topics, topic_epochs, heads, oldest,
			producer_shards, producer_topics, producers, producer_seqs, producer_epochs, seqs, ats, shards, shard_epochs, covered, forgot, born)
		VALUES (nextval('pushmesh.checkpoint_id'), 0, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`

// Checkpoint appends a row on the writer's own connection, so that only an owner can. Greatest
// values hold: nothing is read, nothing updated.
func (w *Writer) Checkpoint(ctx context.Context, c *backend.Checkpoint) error {
	return w.use(ctx, w.log.server.Stall(), func(ctx context.Context) error {
		for _, s := range c.Shards {
			if err := w.requires(s.Shard); err != nil {
				return err
			}
		}
		if len(c.Unkept) > 0 {
			if err := w.forgetKept(ctx, c.Unkept); err != nil {
				return err
			}
		}
		if len(c.Topics)+len(c.Producers)+len(c.Shards) == 0 {
			return nil
		}
		args := append(append(topicColumns(c.Topics), producerColumns(c.Producers)...), shardColumns(c.Shards)...)
		return w.log.partitions.Append(ctx, func() error {
			_, err := w.Conn.Exec(ctx, insertCheckpoint, args...)
			return err
		})
	})
}

func shardColumns(all []backend.Shard) []any {
	n := len(all)
	shards, epochs, covered, forgot, born := make([]int32, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, s := range all {
		shards[i], epochs[i], covered[i], forgot[i], born[i] = int32(s.Shard), int64(s.Epoch), int64(s.Commit), int64(s.Forgot), int64(s.Born)
	}
	return []any{shards, epochs, covered, forgot, born}
}

func topicColumns(all []backend.Topic) []any {
	n := len(all)
	shards, names := make([]int32, n), make([]string, n)
	epochs, heads, oldest := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, t := range all {
		shards[i], names[i], epochs[i], heads[i], oldest[i] = int32(t.Shard), t.Topic, int64(t.Epoch), int64(t.Head), int64(t.Oldest)
	}
	return []any{shards, names, epochs, heads, oldest}
}

func producerColumns(all []backend.Producer) []any {
	n := len(all)
	shards, topics, ids := make([]int32, n), make([]string, n), make([][16]byte, n)
	numbers, epochs, seqs, ats := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, p := range all {
		shards[i], topics[i], ids[i] = int32(p.Shard), p.Topic, p.ID
		numbers[i], epochs[i], seqs[i], ats[i] = int64(p.ProducerSeq), int64(p.Epoch), int64(p.Seq), int64(p.At)
	}
	return []any{shards, topics, ids, numbers, epochs, seqs, ats}
}
