package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// shardTables hold a shard's data, by their columns; the rows of pushmesh.shard itself go last. Ids
// of batches stay: nobody asks for those of a shard that was given back.
var shardTables = []struct{ table, columns string }{
	{"topic", "shard, topic, epoch, head, oldest, at"},
	{"producer", "shard, topic, producer, producer_seq, epoch, seq, at"},
	{"mark", "shard, commit, topic, producer, producer_seq, epoch, seq, at"},
	{"kept", "epoch, seq, at, until, shard, topic, packed"},
	{"key_short", "hash, message_id, epoch, seq, published_at, until, shard"},
	{"key_long", "hash, message_id, epoch, seq, published_at, until, shard"},
	{"scheduled", "due, published_at, ttl, message_id, shard, topic, traceparent, body"},
	{"log_hour", "epoch, first_seq, last_seq, commit, at, shard, topic, packed"},
	{"log_day", "epoch, first_seq, last_seq, commit, at, shard, topic, packed"},
	{"log_week", "epoch, first_seq, last_seq, commit, at, shard, topic, packed"},
	{"log_month", "epoch, first_seq, last_seq, commit, at, shard, topic, packed"},
	{"log_year", "epoch, first_seq, last_seq, commit, at, shard, topic, packed"},
}

// Move moves a shard's data to another database. It holds the shard's lock in both, so that nobody
// owns it meanwhile. The copy, and that the other database holds it, are one transaction there,
// committed once both sides compare equal; before, this one gave it up. So whenever a move ends, at
// most one of them holds the shard, and the same move can be done again. Forget is for what stays
// behind.
func (l *Log) Move(ctx context.Context, to *Log, shard int) error {
	src, err := l.seize(ctx, shard)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close(context.WithoutCancel(ctx)) }()
	dst, err := to.seize(ctx, shard)
	if err != nil {
		return err
	}
	defer func() { _ = dst.Close(context.WithoutCancel(ctx)) }()
	var there bool
	if err := dst.QueryRow(ctx, `SELECT held FROM pushmesh.shard WHERE shard = $1`, shard).Scan(&there); err != nil {
		return fmt.Errorf("postgres: move: %w", err)
	}
	// Should it come back here, its last owner must not take it for what it was.
	if _, err := src.Exec(ctx, `WITH gone AS (DELETE FROM pushmesh.owner WHERE shard = $1)
		UPDATE pushmesh.shard SET held = false WHERE shard = $1`, shard); err != nil {
		return fmt.Errorf("postgres: move: %w", err)
	}
	if !there {
		// Its checkpoints, which nobody writes now, are moved as rows.
		if err := l.FoldCheckpoints(ctx, backend.FoldAll); err != nil {
			return fmt.Errorf("postgres: move: %w", err)
		}
		if err := to.partitions.MakeLike(ctx, src); err != nil {
			return fmt.Errorf("postgres: move: %w", err)
		}
		if err := pgx.BeginFunc(ctx, dst, func(tx pgx.Tx) error { return copyShard(ctx, src, tx, shard) }); err != nil {
			return fmt.Errorf("postgres: move shard %d: %w", shard, err)
		}
	}
	return nil
}

// Forget deletes what lies here of a shard that is held elsewhere.
func (l *Log) Forget(ctx context.Context, shard int) error {
	conn, err := l.seize(ctx, shard)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var held bool
	if err := conn.QueryRow(ctx, `SELECT held FROM pushmesh.shard WHERE shard = $1`, shard).Scan(&held); err != nil {
		return fmt.Errorf("postgres: forget: %w", err)
	}
	if held {
		return fmt.Errorf("postgres: shard %d is held here as well", shard)
	}
	return clearShard(ctx, conn, shard)
}

// seize connects and takes a shard's lock, as soon as its owner gives it back.
func (l *Log) seize(ctx context.Context, shard int) (*server.Conn, error) {
	// one side waits while the other compares
	conn, err := l.server.Connect(ctx, "pushmesh-move", map[string]string{"idle_in_transaction_session_timeout": "0"})
	if err != nil {
		return nil, err
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		var mine bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, int32(LockClass), int32(shard)).Scan(&mine); err != nil {
			return nil, errors.Join(fmt.Errorf("postgres: lock shard %d: %w", shard, err), conn.Close(context.WithoutCancel(ctx)))
		}
		if mine {
			return conn, nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("postgres: shard %d is still owned by a store: %w", shard, ctx.Err()), conn.Close(context.WithoutCancel(ctx)))
		}
	}
}

func copyShard(ctx context.Context, src *server.Conn, dst pgx.Tx, shard int) error {
	if err := clearShard(ctx, dst, shard); err != nil { // of an earlier stay
		return err
	}
	for _, t := range shardTables {
		if err := copyTable(ctx, src, dst, t.table, t.columns, shard); err != nil {
			return fmt.Errorf("%s: %w", t.table, err)
		}
		here, err := digest(ctx, src, t.table, t.columns, shard)
		if err != nil {
			return err
		}
		there, err := digest(ctx, dst, t.table, t.columns, shard)
		if err != nil {
			return err
		}
		if here != there {
			return fmt.Errorf("%s: copied %s, there is %s", t.table, here, there)
		}
	}
	var epoch, born, covered, forgot int64
	if err := src.QueryRow(ctx, `SELECT epoch, born, covered, forgot FROM pushmesh.shard WHERE shard = $1`, shard).Scan(&epoch, &born, &covered, &forgot); err != nil {
		return err
	}
	_, err := dst.Exec(ctx, `UPDATE pushmesh.shard SET epoch = $2, covered = $3, forgot = $4, born = $5, held = true WHERE shard = $1`, shard, epoch, covered, forgot, born)
	return err
}

func copyTable(ctx context.Context, src *server.Conn, dst pgx.Tx, table, columns string, shard int) error {
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := src.PgConn().CopyTo(ctx, w, fmt.Sprintf(`COPY (SELECT %s FROM pushmesh.%s WHERE shard = %d) TO STDOUT (FORMAT binary)`, columns, table, shard))
		_ = w.CloseWithError(err) // nil: EOF
		sent <- err
	}()
	_, err := dst.Conn().PgConn().CopyFrom(ctx, r, fmt.Sprintf(`COPY pushmesh.%s (%s) FROM STDIN (FORMAT binary)`, table, columns))
	_ = r.CloseWithError(err)
	return errors.Join(err, <-sent)
}

// digest of a shard's rows, in whatever order: their number and the sum of their hashes.
func digest(ctx context.Context, on server.Querier, table, columns string, shard int) (s string, err error) {
	err = on.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) || ' rows, ' || coalesce(sum(hashtextextended(r::text, 0)::numeric), 0)
		FROM (SELECT %s FROM pushmesh.%s WHERE shard = $1) AS r`, columns, table), shard).Scan(&s)
	if err != nil {
		return "", fmt.Errorf("compare %s: %w", table, err)
	}
	return s, nil
}

func clearShard(ctx context.Context, on server.Querier, shard int) error {
	for _, t := range shardTables {
		if _, err := on.Exec(ctx, fmt.Sprintf(`DELETE FROM pushmesh.%s WHERE shard = $1`, t.table), shard); err != nil {
			return fmt.Errorf("postgres: clear %s of shard %d: %w", t.table, shard, err)
		}
	}
	return nil
}
