package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// bareWriters are the connections of a bare program.
const bareWriters = 4

// bareRows are the rows of one COPY, each committed on its own.
const bareRows = 1024

// toasted rows above 2 KiB lie in pieces in another table; inline ones don't up to a page.
const (
	toasted = ""
	inline  = "WITH (toast_tuple_target = 8160)"
)

// bare measures what Postgres takes from a program that does nothing else.
func (b *bench) bare(ctx context.Context) error {
	for _, c := range []struct {
		name, storage string
		run, rows     int // messages in a row, rows in a commit
	}{
		{"single rows", toasted, 1, bareRows},
		{"runs of 3", toasted, 3, bareRows / 3},
		{"runs of 16", toasted, 16, bareRows / 16},
		{"runs of 16, inline", inline, 16, bareRows / 16},
		{"runs of 27, inline", inline, 27, bareRows / 27},
		{"runs of 64", toasted, 64, bareRows / 16},
	} {
		row, err := b.copies(ctx, c.name, c.storage, c.run, c.rows)
		if err != nil {
			return fmt.Errorf("bare COPY of %s: %w", c.name, err)
		}
		b.Add(row)
	}
	return nil
}

// copies appends rows with run messages each, in a table like a slice of the log.
func (b *bench) copies(ctx context.Context, name, storage string, run, rows int) (row table.Row, err error) {
	defer try.Catch(&err)
	url := try.Get(b.DB.Fresh())
	defer func() { err = errors.Join(err, b.DB.Drop(context.WithoutCancel(ctx), url)) }()
	try.Do(b.DB.Exec(ctx, url, `CREATE TABLE run (epoch bigint, first_seq bigint, last_seq bigint, commit bigint, at bigint, shard int,
			topic text COLLATE "C", packed bytea) `+storage+`; ALTER TABLE run ALTER packed SET STORAGE EXTERNAL;
		CREATE INDEX ON run (topic, epoch, last_seq); CREATE INDEX ON run (shard, commit)`))
	conns := make([]*pgx.Conn, bareWriters)
	for w := range conns {
		conns[w] = try.Get(pgx.Connect(ctx, url))
		defer func() { _ = conns[w].Close(context.WithoutCancel(ctx)) }()
	}
	pids := try.Get(b.DB.PIDs())
	w := try.Get(suite.Using(suite.Self("program"), suite.Consumer{Name: suite.Postgres, PIDs: pids}))
	var n atomic.Int64
	began := time.Now()
	err = suite.Each(bareWriters, bareWriters, func(_, i int) error { return copyFor(ctx, conns[i], i, run, rows, began.Add(b.bareSpan), &n) })
	rate := float64(n.Load()) / time.Since(began).Seconds()
	used, usedErr := w.Each(n.Load())
	return table.Figure("bare COPY of "+name+", 256 B", rate, "messages/s",
		fmt.Sprintf("%d connections, a commit every %d messages; %s", bareWriters, run*rows, used)), errors.Join(err, usedErr)
}

func copyFor(ctx context.Context, conn *pgx.Conn, w, run, rows int, until time.Time, n *atomic.Int64) (err error) {
	defer try.Catch(&err)
	packed := make([]byte, run*(payload+30)) // what each message of a run has beside its payload
	_, _ = rand.Read(packed)                 // it never fails
	names := names(fmt.Sprintf("room/%d", w), topics/bareWriters)
	columns := []string{"epoch", "first_seq", "last_seq", "commit", "at", "shard", "topic", "packed"}
	for seq := int64(1); time.Now().Before(until); seq++ {
		row := 0
		try.Get(conn.CopyFrom(ctx, pgx.Identifier{"run"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
			if row == rows {
				return nil, nil
			}
			row++
			first := (seq*int64(rows) + int64(row)) * int64(run)
			return []any{int64(1), first, first + int64(run) - 1, seq, 1_790_000_000_000_000 + seq, int32(row % topics), names[row%len(names)], packed}, nil
		})))
		n.Add(int64(rows * run))
	}
	return nil
}
