package log

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

const (
	putKeptSQL = `INSERT INTO pushmesh.kept (shard, topic, epoch, seq, at, until, packed)
		SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[])
		ON CONFLICT (shard, topic) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, at = excluded.at, until = excluded.until, packed = excluded.packed`
	deleteKeptSQL = `DELETE FROM pushmesh.kept AS k USING unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[]) AS gone (shard, topic, epoch, seq)
		WHERE k.shard = gone.shard AND k.topic = gone.topic AND k.epoch = gone.epoch AND k.seq = gone.seq`
)

func (w *Writer) kept(all []backend.Kept) [][]byte {
	a := &w.arrays
	w.keptKeys(all)
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Kept) { a.Int8(k.At) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Kept) { a.Int8(k.Until) })
	server.Column(a, server.OIDBytes, all, func(a *server.Arrays, k *backend.Kept) { a.Bytes(k.Packed) })
	return a.Params()
}

func (w *Writer) unkept(all []backend.Kept) [][]byte {
	w.keptKeys(all)
	return w.arrays.Params()
}

func (w *Writer) keptKeys(all []backend.Kept) {
	a := &w.arrays
	a.Reset()
	server.Column(a, server.OIDInt4, all, func(a *server.Arrays, k *backend.Kept) { a.Int4(k.Shard) })
	server.Column(a, server.OIDText, all, func(a *server.Arrays, k *backend.Kept) { a.Text(k.Topic) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Kept) { a.Int8(k.Epoch) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, k *backend.Kept) { a.Int8(k.Seq) })
}

// forgetKept deletes rows, unless their topics keep another message by now.
func (w *Writer) forgetKept(ctx context.Context, all []backend.Kept) error {
	n := len(all)
	shards, topics, epochs, seqs := make([]int32, n), make([]string, n), make([]int64, n), make([]int64, n)
	for i := range all {
		k := &all[i]
		shards[i], topics[i], epochs[i], seqs[i] = int32(k.Shard), k.Topic, int64(k.Epoch), int64(k.Seq)
	}
	_, err := w.Conn.Exec(ctx, deleteKeptSQL, shards, topics, epochs, seqs)
	return err
}

// loadKept tells what topics keep. What is of an older epoch is void.
func (l *loading) loadKept(ctx context.Context) error {
	rows, err := l.on.Query(ctx, `SELECT k.shard, k.topic, k.epoch, k.seq, k.at, k.until
		FROM pushmesh.kept AS k JOIN pushmesh.shard AS s USING (shard) WHERE k.shard = ANY($1) AND k.epoch >= s.epoch`, l.shards)
	var shard int32
	var name string
	var epoch, seq, at, until int64
	return l.each(rows, err, []any{&shard, &name, &epoch, &seq, &at, &until}, func() {
		l.into.LoadKept(backend.Kept{Shard: int(shard), Topic: name, Epoch: uint64(epoch), Seq: uint64(seq), At: uint64(at), Until: uint64(until)})
	})
}

// Kept looks for one row.
func (l *Log) Kept(ctx context.Context, name string) (k backend.Kept, err error) {
	var shard int32
	var epoch, seq, at, until int64
	var packed []byte
	err = l.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT shard, epoch, seq, at, until, packed FROM pushmesh.kept WHERE shard = $1 AND topic = $2`, topic.Shard(name), name).
			Scan(&shard, &epoch, &seq, &at, &until, &packed)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return k, backend.ErrNotFound
	}
	return backend.Kept{Shard: int(shard), Topic: name, Epoch: uint64(epoch), Seq: uint64(seq), At: uint64(at), Until: uint64(until), Packed: packed}, err
}
