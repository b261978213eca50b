package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const deleteKept = "DELETE FROM kept WHERE shard = ? AND topic = ? AND epoch = ? AND seq = ?"

// moveKept writes what topics keep, and deletes what they keep no longer.
func moveKept(ctx context.Context, tx *sql.Tx, kept, unkept []backend.Kept) error {
	in := &inserter{tx: tx, verb: "INSERT OR REPLACE", table: "kept", columns: 7}
	for i := range kept {
		k := &kept[i]
		if err := in.add(ctx, k.Shard, k.Topic, int64(k.Epoch), int64(k.Seq), int64(k.At), int64(k.Until), k.Packed); err != nil {
			return err
		}
	}
	if err := in.flush(ctx); err != nil {
		return err
	}
	for i := range unkept {
		k := &unkept[i]
		if _, err := tx.ExecContext(ctx, deleteKept, k.Shard, k.Topic, int64(k.Epoch), int64(k.Seq)); err != nil {
			return fmt.Errorf("sqlite: delete what a topic kept: %w", err)
		}
	}
	return nil
}

// kept tells what topics keep. What is of an older epoch is void.
func (l *loading) kept(ctx context.Context) error {
	return l.query(ctx, "SELECT k.shard, k.topic, k.epoch, k.seq, k.at, k.until FROM kept k JOIN shard s ON s.shard = k.shard AND s.epoch = k.epoch", func(rows *sql.Rows) error {
		var k backend.Kept
		err := rows.Scan(&k.Shard, &k.Topic, &k.Epoch, &k.Seq, &k.At, &k.Until)
		if err == nil && l.wanted[k.Shard] {
			l.into.LoadKept(k)
		}
		return err
	})
}

// Kept looks for one row.
func (b *Backend) Kept(ctx context.Context, name string) (k backend.Kept, err error) {
	k.Topic = name
	err = b.read.QueryRowContext(ctx, "SELECT shard, epoch, seq, at, until, packed FROM kept WHERE shard = ? AND topic = ?", topic.Shard(name), name).
		Scan(&k.Shard, &k.Epoch, &k.Seq, &k.At, &k.Until, &k.Packed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return k, backend.ErrNotFound
	case err != nil:
		return k, fmt.Errorf("sqlite: what a topic keeps: %w", err)
	}
	return k, nil
}
