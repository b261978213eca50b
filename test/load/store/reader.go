package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// reader has a transaction that looks at the database as it was, as a backup does, and compares
// what is appended meanwhile. How old its snapshot is makes no difference: nothing that died since
// can be removed.
func (b *bench) reader(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	f := try.Get(dialFlood(ctx, b.streams, firehose.Config{Addr: m.Router.Addr, Topics: names("room", b.frame), Size: payload, Window: b.window}))
	// Without and with in turns, within one load.
	turn := b.bareSpan
	done := make(chan error, 1)
	go func() {
		_, err := f.run(ctx, 6*turn+turn/2)
		done <- err
	}()
	rate := func() float64 {
		before, began := f.answered(), time.Now()
		time.Sleep(turn)
		return float64(f.answered()-before) / time.Since(began).Seconds()
	}
	time.Sleep(turn / 4)
	var without, with float64
	var kept int64 // dead rows that came about while a reader kept them from being removed
	for range 3 {
		without += rate()
		conn := try.Get(snapshot(ctx, m.url))
		before := try.Get(deadRows(ctx, conn))
		with += rate()
		after := try.Get(deadRows(ctx, conn))
		kept += after - before
		try.Do(conn.Close(ctx))
	}
	if err := <-done; err != nil {
		return err
	}
	b.Add(table.AtLeast("append rate with a REPEATABLE READ reader open / without", with/without, "×", .9,
		fmt.Sprintf("3 turns of %s each: %.0f and %.0f messages/s, %d refused", turn, with/3, without/3, f.refused())),
		table.Figure("dead rows of all tables that a reader keeps, at that rate", float64(kept)/(3*turn.Seconds()), "rows/s", "checkpoints of topics and shards; no row of the log"))
	return nil
}

// deadRows of the store's tables, as the server's statistics have it.
func deadRows(ctx context.Context, conn *pgx.Conn) (n int64, err error) {
	if _, err = conn.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'pushmesh'").Scan(&n)
	return n, err
}

// snapshot opens a transaction that sees the log as it is now, and goes on doing so.
func snapshot(ctx context.Context, url string) (_ *pgx.Conn, err error) {
	defer try.Catch(&err)
	conn := try.Get(pgx.Connect(ctx, url))
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pushmesh.log WHERE topic = 'room/settle'"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	return conn, nil
}
