package log

import (
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// A page of runs is read whole before visit sees it, so that a slow reader holds no connection: a
// page has few rows while they are large and more while they are small.
const (
	firstPage   = 8
	largestPage = 1024
	smallPage   = 256 << 10 // bytes below which the next page has twice as many rows
	largePage   = 1 << 20   // bytes above which it has half as many
)

// readRuns ends with the limit: a plan made for a known one merges the slices' indexes and stops
// early. A run beyond the range is a row all the same, without its content, and ends the read. As a
// condition, first_seq would have the index searched on to the topic's last run, in each slice.
const readRuns = `
	SELECT class, shard, commit, topic, epoch, first_seq, last_seq, at, CASE WHEN first_seq <= $4 THEN packed END FROM pushmesh.log
	WHERE topic = $1 AND epoch = $2 AND last_seq >= $3
	ORDER BY last_seq LIMIT `

// on lends a connection.
type on func(ctx context.Context, f func(ctx context.Context, conn server.Querier) error) error

// finder reads what was committed, on the connections that it is lent for runs and for keys.
type finder struct{ runs, keys on }

// finderOf the pool's connections.
func finderOf(s *server.Server) finder {
	lend := func(class dbgate.Class) on {
		return func(ctx context.Context, f func(ctx context.Context, conn server.Querier) error) error {
			return s.As(ctx, class, func(ctx context.Context, conn *pgxpool.Conn) error { return f(ctx, conn) })
		}
	}
	return finder{lend(dbgate.Reads), lend(dbgate.Small)}
}

// lend is for a question: a lane's ctx bounds all of them.
func (w *Writer) lend(ctx context.Context, f func(ctx context.Context, conn server.Querier) error) error {
	return w.use(ctx, w.log.server.Stall(), func(ctx context.Context) error { return f(ctx, w.Conn) })
}

// ReadRuns asks each slice's index once for every page.
func (r finder) ReadRuns(ctx context.Context, topic string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	to = min(to, math.MaxInt64)
	for limit := firstPage; from <= to; {
		most := pageRows(limit, from, to)
		page, bytes, err := readPage(ctx, r.runs, topic, epoch, from, to, most)
		if err != nil {
			return err
		}
		for _, run := range page {
			if run.First > to || !visit(run) {
				return nil
			}
		}
		if len(page) < most {
			return nil
		}
		from = page[len(page)-1].Last() + 1
		switch {
		case bytes < smallPage:
			limit = min(2*limit, largestPage)
		case bytes > largePage:
			limit = max(limit/2, 1)
		}
	}
	return nil
}

// pageRows is how many rows a page has: limit, or less where the range has fewer messages. Powers
// of two, so that a connection has few statements to plan.
func pageRows(limit int, from, to uint64) int {
	n := limit
	for n > 1 && uint64(n/2) > to-from {
		n /= 2
	}
	return n
}

func readPage(ctx context.Context, lend on, topic string, epoch, from, to uint64, limit int) (page []backend.Run, bytes int, err error) {
	err = lend(ctx, func(ctx context.Context, conn server.Querier) error {
		page, bytes = nil, 0 // it may be another try
		rows, err := conn.Query(ctx, readRuns+strconv.Itoa(limit), topic, int64(epoch), int64(from), int64(to))
		var r runRow
		return server.Each(rows, err, r.columns(), func() {
			page = append(page, r.run())
			bytes += len(r.packed)
		})
	})
	return page, bytes, err
}

// oldestRuns passes over the runs that have become too old since the last answer, and no others.
const oldestRuns = `
	SELECT q.i, l.first_seq, l.at
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS q (topic, epoch, since, low, i)
	CROSS JOIN LATERAL (
		SELECT first_seq, at FROM pushmesh.log
		WHERE topic = q.topic AND epoch = q.epoch AND last_seq >= q.low AND at >= q.since ORDER BY last_seq LIMIT 1) AS l`

// Oldest asks one question for each topic, all in one statement; slices that ended before NotBefore
// are not looked at.
func (l *Log) Oldest(ctx context.Context, questions []backend.OldestQuestion) ([]backend.OldestAnswer, error) {
	answers := make([]backend.OldestAnswer, len(questions))
	topics, epochs := make([]string, len(questions)), make([]int64, len(questions))
	since, from := make([]int64, len(questions)), make([]int64, len(questions))
	for i, q := range questions {
		topics[i], epochs[i], since[i], from[i] = q.Topic, int64(q.Epoch), int64(q.NotBefore), int64(q.From)
	}
	err := l.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, oldestRuns, topics, epochs, since, from)
		var i, first, at int64
		return server.Each(rows, err, []any{&i, &first, &at}, func() {
			answers[i-1] = backend.OldestAnswer{Seq: uint64(first), At: uint64(at)}
		})
	})
	return answers, err
}

// Keys looks in both classes; slices that ended are not looked at.
func (r finder) Keys(ctx context.Context, hashes []backend.KeyHash, now uint64) (keys []backend.Key, err error) {
	ids := make([][16]byte, len(hashes))
	for i, h := range hashes {
		ids[i] = h
	}
	err = r.keys(ctx, func(ctx context.Context, conn server.Querier) error {
		rows, err := conn.Query(ctx, `
		      SELECT 0, shard, hash, message_id, epoch, seq, published_at, until FROM pushmesh.key_short WHERE hash = ANY($1) AND until > $2
		UNION ALL SELECT 1, shard, hash, message_id, epoch, seq, published_at, until FROM pushmesh.key_long WHERE hash = ANY($1) AND until > $2`,
			ids, int64(now))
		if err == nil {
			keys, err = pgx.CollectRows(rows, scanKey)
		}
		return err
	})
	return keys, err
}

func scanKey(row pgx.CollectableRow) (k backend.Key, err error) {
	var hash [16]byte
	var class int32
	var epoch, seq, published, until int64
	err = row.Scan(&class, &k.Shard, &hash, &k.MessageID, &epoch, &seq, &published, &until)
	k.Class, k.Hash = backend.KeyClass(class), hash
	k.Epoch, k.Seq, k.PublishedAt, k.Until = uint64(epoch), uint64(seq), uint64(published), uint64(until)
	return k, err
}
