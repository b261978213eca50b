package postgres

import (
	"context"
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
		for _, load := range []func(context.Context, []int32, backend.Loader) error{w.loadShards, w.loadTopics, w.loadProducers, w.loadRuns, w.loadMarks} {
			if err := load(ctx, which, into); err != nil {
				return err
			}
		}
		return nil
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

func (w *writer) loadShards(ctx context.Context, shards []int32, into backend.Loader) error {
	var shard int32
	var epoch, covered int64
	rows, err := w.conn.Query(ctx, `SELECT shard, epoch, covered FROM pushmesh.shard WHERE shard = ANY($1)`, shards)
	return each(rows, err, []any{&shard, &epoch, &covered}, func() {
		into.LoadShard(backend.Shard{Shard: int(shard), Epoch: uint64(epoch), Commit: uint64(covered)})
	})
}

func (w *writer) loadTopics(ctx context.Context, shards []int32, into backend.Loader) error {
	var shard int32
	var name string
	var epoch, head, oldest int64
	rows, err := w.conn.Query(ctx, `
		SELECT t.shard, t.topic, t.epoch, t.head, t.oldest
		FROM pushmesh.topic AS t JOIN pushmesh.shard AS s USING (shard) WHERE t.shard = ANY($1) AND t.epoch >= s.epoch`, shards)
	return each(rows, err, []any{&shard, &name, &epoch, &head, &oldest}, func() {
		into.LoadTopic(backend.Topic{Shard: int(shard), Topic: name, Epoch: uint64(epoch), Head: uint64(head), Oldest: uint64(oldest)})
	})
}

func (w *writer) loadProducers(ctx context.Context, shards []int32, into backend.Loader) error {
	rows, err := w.conn.Query(ctx, `
		SELECT p.shard, p.topic, p.producer, p.producer_seq, p.epoch, p.seq, p.at
		FROM pushmesh.producer AS p JOIN pushmesh.shard AS s USING (shard) WHERE p.shard = ANY($1) AND p.epoch >= s.epoch`, shards)
	return eachProducer(rows, err, into)
}

func (w *writer) loadMarks(ctx context.Context, shards []int32, into backend.Loader) error {
	rows, err := w.conn.Query(ctx, `
		SELECT m.shard, m.topic, m.producer, m.producer_seq, m.epoch, m.seq, m.at
		FROM pushmesh.mark AS m JOIN pushmesh.shard AS s USING (shard)
		WHERE m.shard = ANY($1) AND m.commit > s.covered AND m.epoch >= s.epoch ORDER BY m.shard, m.commit, m.producer_seq`, shards)
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
func (w *writer) loadRuns(ctx context.Context, shards []int32, into backend.Loader) error {
	rows, err := w.conn.Query(ctx, `
		SELECT l.class, l.shard, l.commit, l.topic, l.epoch, l.first_seq, l.last_seq, l.at, l.packed
		FROM pushmesh.shard AS s CROSS JOIN LATERAL (
			SELECT * FROM pushmesh.log WHERE shard = s.shard AND commit > s.covered AND epoch >= s.epoch OFFSET 0) AS l
		WHERE s.shard = ANY($1) ORDER BY l.shard, l.commit, l.topic, l.first_seq`, shards)
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
