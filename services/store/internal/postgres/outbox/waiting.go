package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

var parkOutbox = `INSERT INTO pushmesh.outbox_waiting (shard, size, ` + outboxColumns + `)
	SELECT r.shard, octet_length(o.payload) + coalesce(octet_length(o.headers::text), 0) + 512, o.*
	FROM (` + readOutbox + `) AS o JOIN unnest($1::bigint[], $2::integer[]) AS r (id, shard) ON r.id = o.id
	ON CONFLICT DO NOTHING RETURNING shard, id, size`

// Park copies rows into the table of those that wait.
func (o *outbox) Park(ctx context.Context, ids []int64, shards []int) ([]backend.OutboxWaiting, error) {
	ctx, cancel := context.WithTimeout(ctx, o.server.Config.Patience)
	defer cancel()
	added, err := waitingOf(o.conn.Query(ctx, parkOutbox, ids, shards))
	if err != nil {
		return nil, fmt.Errorf("postgres: keep what can't be published yet: %w", err)
	}
	return added, nil
}

// Waiting reads the index of those rows, and what they take up.
func (o *outbox) Waiting(ctx context.Context) ([]backend.OutboxWaiting, error) {
	ctx, cancel := context.WithTimeout(ctx, server.BulkTimeout)
	defer cancel()
	all, err := waitingOf(o.conn.Query(ctx, `SELECT shard, id, size FROM pushmesh.outbox_waiting`))
	if err != nil {
		return nil, fmt.Errorf("postgres: list what can't be published yet: %w", err)
	}
	return all, nil
}

func waitingOf(found pgx.Rows, err error) (all []backend.OutboxWaiting, _ error) {
	var w backend.OutboxWaiting
	err = server.Each(found, err, []any{&w.Shard, &w.ID, &w.Size}, func() { all = append(all, w) })
	return all, err
}

// The sum is over the sizes of the rows before; the first row always comes.
const firstWaiting = `SELECT ` + outboxColumns + ` FROM (
		SELECT w.*, s.n, row_number() OVER line AS place, sum(w.size) OVER line AS total
		FROM unnest($1::integer[]) WITH ORDINALITY AS s (shard, n)
		CROSS JOIN LATERAL (SELECT * FROM pushmesh.outbox_waiting AS o WHERE o.shard = s.shard ORDER BY o.id LIMIT $2) AS w
		WINDOW line AS (ORDER BY s.n, w.id)
	) AS w WHERE place = 1 OR place <= $3 AND total <= $4 ORDER BY id`

// WaitingRows reads the first rows of shards.
func (o *outbox) WaitingRows(ctx context.Context, shards []int, each, most, bytes int) ([]backend.OutboxRow, error) {
	ctx, cancel := context.WithTimeout(ctx, o.server.Config.Patience)
	defer cancel()
	found, err := o.conn.Query(ctx, firstWaiting, shards, each, most, bytes)
	if err != nil {
		return nil, fmt.Errorf("postgres: read what could not be published: %w", err)
	}
	rows, err := pgx.CollectRows(found, scanOutbox)
	if err != nil {
		return nil, fmt.Errorf("postgres: read what could not be published: %w", err)
	}
	return rows, nil
}

// Unpark deletes rows, and writes the refusals in the same transaction.
func (o *outbox) Unpark(ctx context.Context, ids []int64, shards []int, refused []backend.OutboxRefusal) (gone []backend.OutboxWaiting, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.server.Config.Patience)
	defer cancel()
	err = pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) (err error) {
		if err := keep(ctx, tx, "outbox_waiting", refused); err != nil {
			return err
		}
		gone, err = waitingOf(tx.Query(ctx, `DELETE FROM pushmesh.outbox_waiting AS w USING unnest($1::bigint[], $2::integer[]) AS r (id, shard)
			WHERE w.shard = r.shard AND w.id = r.id RETURNING w.shard, w.id, w.size`, ids, shards))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: delete what waited: %w", err)
	}
	return gone, nil
}
