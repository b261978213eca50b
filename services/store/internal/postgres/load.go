package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// stall is how long the next row of a Load may take: there may be millions of them, but a database that hangs must be noticed.
const stall = 10 * time.Second

// Load reads on the writer's own connection: what it sees can't change but through this writer.
func (w *writer) Load(ctx context.Context, shards []int, into backend.Loader) error {
	return w.use(ctx, bulkTimeout, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch := time.AfterFunc(stall, cancel)
		defer watch.Stop()
		into = watched{into, watch}
		if err := w.requires(shards...); err != nil {
			return err
		}
		which := make([]int32, len(shards))
		for i, s := range shards {
			which[i] = int32(s)
		}
		covered, err := w.loadShards(ctx, which, into)
		if err != nil {
			return err
		}
		if err := w.loadTopics(ctx, which, into); err != nil {
			return err
		}
		if err := w.loadProducers(ctx, which, into); err != nil {
			return err
		}
		if err := w.loadRuns(ctx, which, covered, into); err != nil {
			return err
		}
		return w.loadMarks(ctx, which, covered, into)
	})
}

// watched tells the watch of each row.
type watched struct {
	backend.Loader
	watch *time.Timer
}

func (l watched) LoadTopic(t backend.Topic) {
	l.watch.Reset(stall)
	l.Loader.LoadTopic(t)
}

func (l watched) LoadProducer(p backend.Producer) {
	l.watch.Reset(stall)
	l.Loader.LoadProducer(p)
}

func (l watched) LoadRun(r backend.Run) {
	l.watch.Reset(stall)
	l.Loader.LoadRun(r)
}

// loadShards also says what each shard's checkpoint covers, in the order of shards: what is asked after it is at least as new.
func (w *writer) loadShards(ctx context.Context, shards []int32, into backend.Loader) (covered []int64, err error) {
	var shard int32
	var epoch, commit, forgot int64
	rows, err := w.conn.Query(ctx, `
		SELECT s.shard, s.epoch, greatest(s.covered, n.covered), greatest(s.forgot, n.forgot)
		FROM unnest($1::int[]) WITH ORDINALITY AS want (shard, at) JOIN pushmesh.shard AS s USING (shard)
		LEFT JOIN (SELECT shard, epoch, max(covered) AS covered, max(forgot) AS forgot FROM pushmesh.checkpoint_shard GROUP BY shard, epoch) AS n
			ON n.shard = s.shard AND n.epoch = s.epoch
		ORDER BY want.at`, shards)
	err = each(rows, err, []any{&shard, &epoch, &commit, &forgot}, func() {
		into.LoadShard(backend.Shard{Shard: int(shard), Epoch: uint64(epoch), Commit: uint64(commit), Forgot: uint64(forgot)})
		covered = append(covered, commit)
	})
	if err == nil && len(covered) != len(shards) {
		err = fmt.Errorf("%d shards asked for, %d found", len(shards), len(covered))
	}
	return covered, err
}

// loadTopics tells what was folded, then what lies in pages: that is told as what holds of both.
func (w *writer) loadTopics(ctx context.Context, shards []int32, into backend.Loader) error {
	for _, sql := range []string{`
		SELECT t.shard, t.topic, t.epoch, t.head, t.oldest
		FROM pushmesh.topic AS t JOIN pushmesh.shard AS s USING (shard) WHERE t.shard = ANY($1) AND t.epoch >= s.epoch`, `
		SELECT n.shard, n.topic, n.epoch, CASE WHEN t.epoch = n.epoch THEN greatest(t.head, n.head) ELSE n.head END,
			CASE WHEN t.epoch = n.epoch THEN greatest(t.oldest, n.oldest) ELSE n.oldest END
		FROM (SELECT DISTINCT ON (shard, topic) shard, topic, epoch, max(head) AS head, max(oldest) AS oldest
			FROM pushmesh.checkpoint_topic WHERE shard = ANY($1) GROUP BY shard, topic, epoch ORDER BY shard, topic, epoch DESC) AS n
		JOIN pushmesh.shard AS s USING (shard) LEFT JOIN pushmesh.topic AS t ON t.shard = n.shard AND t.topic = n.topic
		WHERE n.epoch >= s.epoch AND (t.epoch IS NULL OR t.epoch <= n.epoch)`} {
		var shard int32
		var name string
		var epoch, head, oldest int64
		rows, err := w.conn.Query(ctx, sql, shards)
		err = each(rows, err, []any{&shard, &name, &epoch, &head, &oldest}, func() {
			into.LoadTopic(backend.Topic{Shard: int(shard), Topic: name, Epoch: uint64(epoch), Head: uint64(head), Oldest: uint64(oldest)})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// loadProducers likewise; of several the loader takes the greatest.
func (w *writer) loadProducers(ctx context.Context, shards []int32, into backend.Loader) error {
	for _, sql := range []string{`
		SELECT p.shard, p.topic, p.producer, p.producer_seq, p.epoch, p.seq, p.at
		FROM pushmesh.producer AS p JOIN pushmesh.shard AS s USING (shard)
		WHERE p.shard = ANY($1) AND p.epoch >= s.epoch AND p.at >= ` + forgotten + `[p.shard + 1]`, `
		SELECT DISTINCT ON (n.shard, n.topic, n.producer) n.shard, n.topic, n.producer, n.producer_seq, n.epoch, n.seq, n.at
		FROM pushmesh.checkpoint_producer AS n JOIN pushmesh.shard AS s USING (shard)
		WHERE n.shard = ANY($1) AND n.epoch >= s.epoch AND n.at >= ` + forgotten + `[n.shard + 1]
		ORDER BY n.shard, n.topic, n.producer, n.epoch DESC, n.producer_seq DESC`} {
		rows, err := w.conn.Query(ctx, sql, shards)
		if err := eachProducer(rows, err, into); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) loadMarks(ctx context.Context, shards []int32, covered []int64, into backend.Loader) error {
	rows, err := w.conn.Query(ctx, `
		SELECT m.shard, m.topic, m.producer, m.producer_seq, m.epoch, m.seq, m.at
		FROM unnest($1::int[], $2::bigint[]) AS c (shard, covered) JOIN pushmesh.shard AS s USING (shard) JOIN pushmesh.mark AS m USING (shard)
		WHERE m.commit > c.covered AND m.epoch >= s.epoch ORDER BY m.shard, m.commit, m.producer_seq`, shards, covered)
	return eachProducer(rows, err, into)
}

func eachProducer(rows pgx.Rows, err error, into backend.Loader) error {
	var shard int32
	var name string
	var id [16]byte
	var number, epoch, seq, at int64
	return each(rows, err, []any{&shard, &name, &id, &number, &epoch, &seq, &at}, func() {
		into.LoadProducer(backend.Producer{
			Shard: int(shard), Topic: name, ID: id, ProducerSeq: uint64(number), Epoch: uint64(epoch), Seq: uint64(seq), At: uint64(at),
		})
	})
}

// loadRuns reads what no checkpoint covers. Nothing of a takeover's log is held in memory but the row at hand.
func (w *writer) loadRuns(ctx context.Context, shards []int32, covered []int64, into backend.Loader) error {
	rows, err := w.conn.Query(ctx, `
		SELECT l.class, l.shard, l.commit, l.topic, l.epoch, l.first_seq, l.last_seq, l.at, l.packed
		FROM unnest($1::int[], $2::bigint[]) AS c (shard, covered) JOIN pushmesh.shard AS s USING (shard) CROSS JOIN LATERAL (
			SELECT * FROM pushmesh.log WHERE shard = s.shard AND commit > c.covered AND epoch >= s.epoch OFFSET 0) AS l
		ORDER BY l.shard, l.commit, l.topic, l.first_seq`, shards, covered)
	var r runRow
	return each(rows, err, r.columns(), func() { into.LoadRun(r.run()) })
}

func each(rows pgx.Rows, err error, into []any, visit func()) error {
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		visit()
		return nil
	})
	return err
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
