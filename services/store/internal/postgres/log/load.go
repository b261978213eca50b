package log

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Load reads on the writer's own connection, all of it from one snapshot: a fold that commits
// between two statements moves what the earlier one did not see yet to where the later one doesn't
// look any more.
func (w *Writer) Load(ctx context.Context, shards []int, into backend.Loader) error {
	return w.use(ctx, server.BulkTimeout, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch := time.AfterFunc(w.log.server.Stall(), cancel)
		defer watch.Stop()
		if err := w.requires(shards...); err != nil {
			return err
		}
		which := make([]int32, len(shards))
		for i, s := range shards {
			which[i] = int32(s)
		}
		return pgx.BeginTxFunc(ctx, w.Conn, oneSnapshot, func(tx pgx.Tx) error {
			l := loading{on: tx, shards: which, into: into, seen: func() { watch.Reset(w.log.server.Stall()) }}
			return l.all(ctx)
		})
	})
}

// oneSnapshot has every statement of a transaction see the same state of the database.
var oneSnapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// loading is one Load. covered is what each shard's checkpoint covers, in the order of shards, and
// epochs are theirs by their numbers.
type loading struct {
	on      pgx.Tx
	shards  []int32
	covered []int64
	epochs  [topic.Shards]uint64
	into    backend.Loader
	seen    func() // called now and then as rows come
}

func (l *loading) each(rows pgx.Rows, err error, into []any, visit func()) error {
	return server.Each(rows, err, into, func() {
		l.seen()
		visit()
	})
}

// all begins with a lock, before the snapshot is taken: a slice of pages that are folded meanwhile
// is not dropped, though the snapshot needs it.
func (l *loading) all(ctx context.Context) error {
	if _, err := l.on.Exec(ctx, `LOCK TABLE ONLY pushmesh.checkpoint IN ACCESS SHARE MODE`); err != nil {
		return err
	}
	for _, load := range []func(context.Context) error{l.loadShards, l.loadTopics, l.loadProducers, l.loadRuns, l.loadMarks, l.loadKept} {
		if err := load(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *loading) loadShards(ctx context.Context) error {
	var shard int32
	var epoch, born, commit, forgot int64
	rows, err := l.on.Query(ctx, `
		SELECT s.shard, s.epoch, greatest(s.born, n.born), greatest(s.covered, n.covered), greatest(s.forgot, n.forgot)
		FROM unnest($1::int[]) WITH ORDINALITY AS want (shard, at) JOIN pushmesh.shard AS s USING (shard)
		LEFT JOIN (SELECT shard, epoch, max(covered) AS covered, max(forgot) AS forgot, max(born) AS born FROM pushmesh.checkpoint_shard GROUP BY shard, epoch) AS n
			ON n.shard = s.shard AND n.epoch = s.epoch
		ORDER BY want.at`, l.shards)
	err = l.each(rows, err, []any{&shard, &epoch, &born, &commit, &forgot}, func() {
		l.into.LoadShard(backend.Shard{Shard: int(shard), Epoch: uint64(epoch), Born: uint64(born), Commit: uint64(commit), Forgot: uint64(forgot)})
		l.covered = append(l.covered, commit)
		l.epochs[shard] = uint64(epoch)
	})
	if err == nil && len(l.covered) != len(l.shards) {
		err = fmt.Errorf("%d shards asked for, %d found", len(l.shards), len(l.covered))
	}
	return err
}

// loadTopics tells what was folded, then what lies in pages: the loader takes the latest. With
// COPY, and a table of which many shards are wanted read as it lies: there may be millions.
func (l *loading) loadTopics(ctx context.Context) error {
	shards := make([]string, len(l.shards))
	for i, shard := range l.shards {
		shards[i] = strconv.Itoa(int(shard))
	}
	wanted := "(" + strings.Join(shards, ", ") + ")"
	if _, err := l.on.Exec(ctx, `SET LOCAL enable_seqscan = on; SET LOCAL max_parallel_workers_per_gather = 0`); err != nil {
		return err
	}
	if err := l.copyTopics(ctx, `SELECT shard, epoch, head, oldest, topic FROM pushmesh.topic WHERE shard IN `+wanted); err != nil {
		return err
	}
	if _, err := l.on.Exec(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
		return err
	}
	return l.copyTopics(ctx, `SELECT shard, epoch, max(head), max(oldest), topic FROM pushmesh.checkpoint_topic WHERE shard IN `+wanted+` GROUP BY shard, topic, epoch`)
}

func (l *loading) copyTopics(ctx context.Context, query string) error {
	n := 0
	return server.CopyRows(ctx, l.on, query, func(v [][]byte) error {
		if n++; n%64 == 1 {
			// they are small and many: to be told of each would cost as much as the row
			l.seen()
		}
		t, err := topicOf(v)
		if err == nil && t.Epoch >= l.epochs[t.Shard] { // a join would cost as much as all else
			l.into.LoadTopic(t)
		}
		return err
	})
}

// topicOf is a row of shard, epoch, head, oldest, topic.
func topicOf(v [][]byte) (t backend.Topic, err error) {
	if len(v) != 5 || len(v[4]) == 0 {
		return t, fmt.Errorf("a topic's row has %d columns", len(v))
	}
	shard, err := server.Int4(v[0])
	if err != nil {
		return t, err
	}
	if shard < 0 || shard >= topic.Shards {
		return t, fmt.Errorf("a topic is of shard %d", shard)
	}
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = server.Int8(v[1+i]); err != nil {
			return t, err
		}
	}
	t = backend.Topic{Shard: int(shard), Epoch: uint64(numbers[0]), Head: uint64(numbers[1]), Oldest: uint64(numbers[2])}
	t.Topic = unsafe.String(&v[4][0], len(v[4]))
	return t, nil
}

// loadProducers likewise.
func (l *loading) loadProducers(ctx context.Context) error {
	for _, sql := range []string{`
		SELECT p.shard, p.topic, p.producer, p.producer_seq, p.epoch, p.seq, p.at
		FROM pushmesh.producer AS p JOIN pushmesh.shard AS s USING (shard)
		WHERE p.shard = ANY($1) AND p.epoch >= s.epoch AND p.at >= ` + forgotten + `[p.shard + 1]`, `
		SELECT DISTINCT ON (n.shard, n.topic, n.producer) n.shard, n.topic, n.producer, n.producer_seq, n.epoch, n.seq, n.at
		FROM pushmesh.checkpoint_producer AS n JOIN pushmesh.shard AS s USING (shard)
		WHERE n.shard = ANY($1) AND n.epoch >= s.epoch AND n.at >= ` + forgotten + `[n.shard + 1]
		ORDER BY n.shard, n.topic, n.producer, n.epoch DESC, n.producer_seq DESC`} {
		rows, err := l.on.Query(ctx, sql, l.shards)
		if err := l.eachProducer(rows, err, nil, l.into.LoadProducer); err != nil {
			return err
		}
	}
	return nil
}

func (l *loading) loadMarks(ctx context.Context) error {
	rows, err := l.on.Query(ctx, `
		SELECT m.commit, m.shard, m.topic, m.producer, m.producer_seq, m.epoch, m.seq, m.at
		FROM unnest($1::int[], $2::bigint[]) AS c (shard, covered) JOIN pushmesh.shard AS s USING (shard) JOIN pushmesh.mark AS m USING (shard)
		WHERE m.commit > c.covered AND m.epoch >= s.epoch ORDER BY m.shard, m.commit, m.producer_seq`, l.shards, l.covered)
	var commit int64
	return l.eachProducer(rows, err, []any{&commit}, func(p backend.Producer) { l.into.LoadMark(backend.Mark{Commit: uint64(commit), Producer: p}) })
}

// eachProducer visits producers; columns are those before theirs.
func (l *loading) eachProducer(rows pgx.Rows, err error, columns []any, visit func(backend.Producer)) error {
	var shard int32
	var name string
	var id [16]byte
	var number, epoch, seq, at int64
	return l.each(rows, err, append(columns, &shard, &name, &id, &number, &epoch, &seq, &at), func() {
		visit(backend.Producer{
			Shard: int(shard), Topic: name, ID: id, ProducerSeq: uint64(number), Epoch: uint64(epoch), Seq: uint64(seq), At: uint64(at),
		})
	})
}

// loadRuns reads what no checkpoint covers, and before it the last commits that one does: what has
// to be in the checkpoint. Nothing of a takeover's log is held in memory but the row at hand.
func (l *loading) loadRuns(ctx context.Context) error {
	rows, err := l.on.Query(ctx, `
		SELECT l.class, l.shard, l.commit, l.topic, l.epoch, l.first_seq, l.last_seq, l.at, CASE WHEN l.commit > c.covered THEN l.packed END, l.commit <= c.covered
		FROM unnest($1::int[], $2::bigint[]) AS c (shard, covered) JOIN pushmesh.shard AS s USING (shard) CROSS JOIN LATERAL (
			SELECT * FROM pushmesh.log WHERE shard = s.shard AND commit > c.covered - $3 AND epoch >= s.epoch OFFSET 0) AS l
		ORDER BY l.shard, l.commit, l.topic, l.first_seq`, l.shards, l.covered, int64(backend.CoveredCommits))
	var r runRow
	var covered bool
	return l.each(rows, err, append(r.columns(), &covered), func() {
		if covered {
			l.into.LoadCovered(r.run())
		} else {
			l.into.LoadRun(r.run())
		}
	})
}

// runRow is a row of pushmesh.log being scanned.
type runRow struct {
	class, shard                   int32
	commit, epoch, first, last, at int64
	topic                          string
	packed                         []byte
}

func (r *runRow) columns() []any {
	return []any{&r.class, &r.shard, &r.commit, &r.topic, &r.epoch, &r.first, &r.last, &r.at, &r.packed}
}

func (r *runRow) run() backend.Run {
	return backend.Run{
		Shard: int(r.shard), Commit: uint64(r.commit), Topic: r.topic, Epoch: uint64(r.epoch), First: uint64(r.first),
		N: int(r.last - r.first + 1), At: uint64(r.at), Class: backend.Class(r.class), Packed: r.packed,
	}
}
