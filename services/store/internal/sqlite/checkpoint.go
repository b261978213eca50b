package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A stored state is replaced by a greater one alone: of a later epoch, or part by part.
const (
	putTopic = `INSERT INTO topic_head (topic, shard, epoch, head, oldest, at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (topic) DO UPDATE SET epoch = excluded.epoch, at = excluded.at,
			head = CASE WHEN epoch = excluded.epoch THEN max(head, excluded.head) ELSE excluded.head END,
			oldest = CASE WHEN epoch = excluded.epoch THEN max(oldest, excluded.oldest) ELSE excluded.oldest END
		WHERE excluded.epoch >= epoch`
	putProducer = `INSERT INTO producer (topic, id, shard, producer_seq, epoch, seq, at) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (topic, id) DO UPDATE SET producer_seq = excluded.producer_seq, epoch = excluded.epoch, seq = excluded.seq, at = excluded.at
		WHERE (excluded.epoch, excluded.producer_seq) > (epoch, producer_seq)`
	putShard    = "UPDATE shard SET commit_no = max(commit_no, ?1), forgot = max(forgot, ?4), born = max(born, ?5) WHERE shard = ?2 AND epoch = ?3"
	forgetMarks = "DELETE FROM producer_mark WHERE shard = ? AND commit_no <= ?"
)

// checkpointRows is how many rows go in one transaction: an append waits for at most one.
const checkpointRows = 1000

// Checkpoint stores states in several transactions, the shards' commit numbers in the last: cut
// short, it covers nothing new. One that forgets topics is a single one.
func (w *Writer) Checkpoint(ctx context.Context, c *backend.Checkpoint) error {
	if slices.ContainsFunc(c.Topics, func(t backend.Topic) bool { return t.Head == 0 }) {
		return w.forget(ctx, c)
	}
	for part := range slices.Chunk(c.Unkept, checkpointRows) {
		if err := w.owned(ctx, len(part), func(i int) int { return part[i].Shard }, func(ctx context.Context, tx *sql.Tx, i int) error {
			k := &part[i]
			_, err := tx.ExecContext(ctx, deleteKept, k.Shard, k.Topic, int64(k.Epoch), int64(k.Seq))
			return err
		}); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(c.Topics, checkpointRows) {
		if err := w.owned(ctx, len(part), func(i int) int { return part[i].Shard }, func(ctx context.Context, tx *sql.Tx, i int) error {
			return storeTopic(ctx, tx, &part[i])
		}); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(c.Producers, checkpointRows) {
		if err := w.owned(ctx, len(part), func(i int) int { return part[i].Shard }, func(ctx context.Context, tx *sql.Tx, i int) error {
			p := &part[i]
			_, err := tx.ExecContext(ctx, putProducer, p.Topic, p.ID[:], p.Shard, int64(p.ProducerSeq), int64(p.Epoch), int64(p.Seq), int64(p.At))
			return err
		}); err != nil {
			return err
		}
	}
	return w.owned(ctx, len(c.Shards), func(i int) int { return c.Shards[i].Shard }, func(ctx context.Context, tx *sql.Tx, i int) error {
		return storeShard(ctx, tx, &c.Shards[i])
	})
}

func storeTopic(ctx context.Context, tx *sql.Tx, t *backend.Topic) error {
	_, err := tx.ExecContext(ctx, putTopic, t.Topic, t.Shard, int64(t.Epoch), int64(t.Head), int64(t.Oldest), time.Now().UnixMicro())
	return err
}

func storeShard(ctx context.Context, tx *sql.Tx, s *backend.Shard) error {
	if _, err := tx.ExecContext(ctx, putShard, int64(s.Commit), s.Shard, int64(s.Epoch), int64(s.Forgot), int64(s.Born)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, forgetMarks, s.Shard, int64(s.Commit))
	return err
}

// owned does each of n things in one transaction, while the shards that they concern are this
// writer's.
func (w *Writer) owned(ctx context.Context, n int, shard func(i int) int, do func(ctx context.Context, tx *sql.Tx, i int) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		if err := w.check(shard(i)); err != nil {
			return err
		}
	}
	return inTx(ctx, w.b.write, func(tx *sql.Tx) error {
		for i := range n {
			if err := do(ctx, tx, i); err != nil {
				return fmt.Errorf("sqlite: checkpoint: %w", err)
			}
		}
		return nil
	})
}

// How positions that were forgotten are deleted: looked for beside the writer, now and then, and so
// many in one transaction.
const (
	sweepEvery = 10 * time.Minute
	sweepRows  = 500
)

// sweeping is who sweeps, and when the last one was done.
type sweeping struct {
	mu sync.Mutex
	at time.Time
}

// FoldCheckpoints deletes topics, and positions of producers, that were forgotten; all else is
// replaced in place. One caller does it at a time.
func (b *Backend) FoldCheckpoints(ctx context.Context, how backend.Fold) error {
	if !b.swept.mu.TryLock() {
		return nil
	}
	defer b.swept.mu.Unlock()
	if how == backend.FoldDue && time.Since(b.swept.at) < sweepEvery {
		return nil
	}
	if err := b.sweepTopics(ctx); err != nil {
		return err
	}
	for {
		gone, err := b.forgotten(ctx)
		if err != nil {
			return err
		}
		if len(gone) == 0 {
			b.swept.at = time.Now()
			return nil
		}
		if err := b.sweep(ctx, gone); err != nil {
			return err
		}
	}
}

// positionKey is the primary key of a row of positions.
type positionKey struct {
	topic string
	id    []byte
}

// forgotten are some of the rows that hold positions from before their shards' forgot.
func (b *Backend) forgotten(ctx context.Context) ([]positionKey, error) {
	return collect(ctx, b.read, func(rows *sql.Rows) (k positionKey, err error) {
		err = rows.Scan(&k.topic, &k.id)
		return k, err
	}, "SELECT p.topic, p.id FROM producer p JOIN shard s ON s.shard = p.shard AND p.at < s.forgot LIMIT 20000")
}

// sweep deletes rows, but for those that were used again since.
func (b *Backend) sweep(ctx context.Context, gone []positionKey) error {
	for some := range slices.Chunk(gone, sweepRows) {
		if err := inTx(ctx, b.write, func(tx *sql.Tx) error {
			for _, k := range some {
				if _, err := tx.ExecContext(ctx, "DELETE FROM producer WHERE topic = ? AND id = ? AND at < (SELECT forgot FROM shard s WHERE s.shard = producer.shard)", k.topic, k.id); err != nil {
					return fmt.Errorf("sqlite: forget a position: %w", err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// forget stores a checkpoint that forgets topics, in one transaction. Rows that say so take the
// place of the topics' until they are swept.
func (w *Writer) forget(ctx context.Context, c *backend.Checkpoint) error {
	shards, topics := len(c.Shards), len(c.Topics)
	return w.owned(ctx, shards+topics, func(i int) int {
		if i < shards {
			return c.Shards[i].Shard
		}
		return c.Topics[i-shards].Shard
	}, func(ctx context.Context, tx *sql.Tx, i int) error {
		if i < shards {
			return storeShard(ctx, tx, &c.Shards[i])
		}
		return storeTopic(ctx, tx, &c.Topics[i-shards])
	})
}

// sweepTopics deletes the rows of topics that are forgotten, and have not begun anew since.
func (b *Backend) sweepTopics(ctx context.Context) error {
	for {
		gone, err := collect(ctx, b.read, func(rows *sql.Rows) (name string, err error) {
			err = rows.Scan(&name)
			return name, err
		}, "SELECT topic FROM topic_head WHERE head = 0 LIMIT 20000")
		if err != nil || len(gone) == 0 {
			return err
		}
		for some := range slices.Chunk(gone, sweepRows) {
			if err := inTx(ctx, b.write, func(tx *sql.Tx) error {
				for _, name := range some {
					if _, err := tx.ExecContext(ctx, "DELETE FROM topic_head WHERE topic = ? AND head = 0", name); err != nil {
						return fmt.Errorf("sqlite: forget a topic: %w", err)
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
}

// Silent looks at topics of a shard in order of their names.
func (b *Backend) Silent(ctx context.Context, shard int, after string, before uint64) (silent []backend.SilentTopic, next string, err error) {
	all, err := collect(ctx, b.read, func(rows *sql.Rows) (t backend.SilentTopic, err error) {
		t.Shard = shard
		err = rows.Scan(&t.Topic.Topic, &t.Epoch, &t.Head, &t.Oldest, &t.At)
		return t, err
	}, `SELECT topic, epoch, head, oldest, max(at, (SELECT at FROM topic_head_since)) FROM topic_head
		WHERE shard = ? AND topic > ? ORDER BY topic LIMIT ?`, shard, after, backend.SilentLook)
	if len(all) == backend.SilentLook {
		next = all[len(all)-1].Topic.Topic
	}
	return slices.DeleteFunc(all, func(t backend.SilentTopic) bool { return t.Head == 0 || t.At >= before }), next, err
}

// forgetsTopics is the step that a store must know where topics were forgotten.
const forgetsTopics = 15

// ForgetTopics has stores that don't know of topics which begin anew be refused.
func (b *Backend) ForgetTopics(ctx context.Context) error {
	var needs int64
	if err := b.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&needs); err != nil {
		return fmt.Errorf("sqlite: which stores may use the file: %w", err)
	}
	if needs >= forgetsTopics {
		return nil
	}
	if _, err := b.write.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", forgetsTopics)); err != nil {
		return fmt.Errorf("sqlite: which stores may use the file: %w", err)
	}
	return nil
}
