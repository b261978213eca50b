package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

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
