package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// singleRounds are taken in turns, so that whatever else the machine does meets both.
const singleRounds = 5

// single is one publisher that waits for each answer, beside a program that commits a row at a
// time.
func (b *bench) single(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 0))
	defer func() { err = errors.Join(err, m.end()) }()
	conn := try.Get(pgx.Connect(ctx, m.url))
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	try.Get(conn.Exec(ctx, "CREATE TABLE bare (seq bigint PRIMARY KEY, topic text, payload bytea)"))
	var ours, bare, ratios []float64
	row := int64(0)
	for range singleRounds {
		h := try.Get(firehose.Dial(ctx, firehose.Config{Addr: m.Router.Addr, Topics: []string{"room/1"}, Size: payload, Window: 1}))
		took := try.Get(h.Run(ctx, b.bareSpan/2))
		inserts := try.Get(insertFor(ctx, conn, b.bareSpan/2, &row))
		ours, bare = append(ours, table.Quantile(took, .5)), append(bare, table.Quantile(inserts, .5))
		ratios = append(ratios, ours[len(ours)-1]/bare[len(bare)-1])
	}
	b.Add(table.AtMost("one publisher, one message at a time: answer p50 / bare INSERT+COMMIT p50", table.Median(ratios), "×", 2,
		fmt.Sprintf("median of %d rounds, %s; ours %.3f ms, bare %.3f ms", singleRounds, table.Spread(ratios), table.Median(ours), table.Median(bare))))
	return nil
}

// insertFor commits a row at a time on one connection.
func insertFor(ctx context.Context, conn *pgx.Conn, span time.Duration, row *int64) (took []time.Duration, err error) {
	text := make([]byte, payload)
	_, _ = rand.Read(text) // it never fails
	for began := time.Now(); time.Since(began) < span; {
		*row++
		sent := time.Now()
		if _, err := conn.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", *row, "room/1", text); err != nil {
			return nil, err
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	return took, nil
}
