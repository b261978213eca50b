package log

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Silent looks at a piece of the primary key of pushmesh.topic.
func (l *Log) Silent(ctx context.Context, shard int, after string, before uint64) (silent []backend.SilentTopic, next string, err error) {
	var all []backend.SilentTopic
	err = l.server.As(ctx, dbgate.Reads, func(ctx context.Context, conn *pgxpool.Conn) error {
		all = nil // it may be another try
		rows, err := conn.Query(ctx, `SELECT topic, epoch, head, oldest, at FROM pushmesh.topic
			WHERE shard = $1 AND topic > $2 ORDER BY topic LIMIT $3`, int32(shard), after, int32(backend.SilentLook))
		var name string
		var epoch, head, oldest, at int64
		return server.Each(rows, err, []any{&name, &epoch, &head, &oldest, &at}, func() {
			all = append(all, backend.SilentTopic{
				Topic: backend.Topic{Shard: shard, Topic: name, Epoch: uint64(epoch), Head: uint64(head), Oldest: uint64(oldest)}, At: uint64(at),
			})
		})
	})
	if len(all) == backend.SilentLook {
		next = all[len(all)-1].Topic.Topic
	}
	return slices.DeleteFunc(all, func(t backend.SilentTopic) bool { return t.At >= before }), next, err
}

// forgetsTopics is the step that a store must know where topics were forgotten.
const forgetsTopics = 42

// ForgetTopics has stores that don't know of topics which begin anew not start any more.
func (l *Log) ForgetTopics(ctx context.Context) error {
	return l.server.TxAs(ctx, dbgate.Small, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO pushmesh.oldest_store (step) SELECT $1::bigint WHERE NOT EXISTS (SELECT FROM pushmesh.oldest_store WHERE step >= $1)`, int64(forgetsTopics))
		return err
	})
}
