package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Load tells what is known of shards. It asks for all shards at once and picks: a store of one file
// owns all or nearly all.
func (w *Writer) Load(ctx context.Context, shards []int, into backend.Loader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(shards...); err != nil {
		return err
	}
	wanted := make(map[int]bool, len(shards))
	for _, s := range shards {
		wanted[s] = true
	}
	l := loading{wanted: wanted, into: into}
	if err := l.begin(ctx, w.b); err != nil {
		return err
	}
	for _, load := range []func(context.Context) error{l.topics, l.producers, l.runs, l.marks, l.kept} {
		if err := load(ctx); err != nil {
			return errors.Join(err, l.tx.Rollback())
		}
	}
	if err := l.tx.Rollback(); err != nil { // it has only read
		return fmt.Errorf("sqlite: load: %w", err)
	}
	return nil
}

// loading is one Load. All of it is as of the moment of the first question in tx, when logs were
// the slices of the log.
type loading struct {
	tx     *sql.Tx
	logs   []sliceTable
	wanted map[int]bool
	into   backend.Loader
}

// begin asks for the shards, while no slice is dropped.
func (l *loading) begin(ctx context.Context, b *Backend) (err error) {
	b.slices.mu.RLock()
	defer b.slices.mu.RUnlock()
	if l.tx, err = b.read.BeginTx(ctx, nil); err != nil {
		return fmt.Errorf("sqlite: load: %w", err)
	}
	l.logs = b.slices.of(logKind, 0)
	if err := l.shards(ctx); err != nil {
		return errors.Join(err, l.tx.Rollback())
	}
	return nil
}

func (l *loading) query(ctx context.Context, query string, each func(rows *sql.Rows) error) error {
	rows, err := l.tx.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("sqlite: load: %w", err)
	}
	return scan(rows, func() error { return each(rows) })
}

func (l *loading) shards(ctx context.Context) error {
	return l.query(ctx, "SELECT shard, epoch, born, commit_no, forgot FROM shard", func(rows *sql.Rows) error {
		var s backend.Shard
		err := rows.Scan(&s.Shard, &s.Epoch, &s.Born, &s.Commit, &s.Forgot)
		if err == nil && l.wanted[s.Shard] {
			l.into.LoadShard(s)
		}
		return err
	})
}

func (l *loading) topics(ctx context.Context) error {
	const query = "SELECT t.shard, t.topic, t.epoch, t.head, t.oldest FROM topic_head t JOIN shard s ON s.shard = t.shard AND t.epoch >= s.epoch"
	return l.query(ctx, query, func(rows *sql.Rows) error {
		var t backend.Topic
		err := rows.Scan(&t.Shard, &t.Topic, &t.Epoch, &t.Head, &t.Oldest)
		if err == nil && l.wanted[t.Shard] {
			l.into.LoadTopic(t)
		}
		return err
	})
}

const positionColumns = "p.shard, p.topic, p.id, p.producer_seq, p.epoch, p.seq, p.at"

// position reads a row of positionColumns, with others before them.
func position(rows *sql.Rows, others ...any) (p backend.Producer, err error) {
	var id sql.RawBytes
	err = rows.Scan(append(others, &p.Shard, &p.Topic, &id, &p.ProducerSeq, &p.Epoch, &p.Seq, &p.At)...)
	copy(p.ID[:], id)
	return p, err
}

func (l *loading) producers(ctx context.Context) error {
	return l.query(ctx, "SELECT "+positionColumns+" FROM producer p JOIN shard s ON s.shard = p.shard AND p.epoch >= s.epoch AND p.at >= s.forgot", func(rows *sql.Rows) error {
		p, err := position(rows)
		if err == nil && l.wanted[p.Shard] {
			l.into.LoadProducer(p)
		}
		return err
	})
}

func (l *loading) marks(ctx context.Context) error {
	return l.query(ctx, "SELECT p.commit_no, "+positionColumns+` FROM shard s JOIN producer_mark p ON p.shard = s.shard AND p.commit_no > s.commit_no AND p.epoch >= s.epoch
		ORDER BY p.shard, p.commit_no`, func(rows *sql.Rows) error {
		var m backend.Mark
		var err error
		if m.Producer, err = position(rows, &m.Commit); err == nil && l.wanted[m.Shard] {
			l.into.LoadMark(m)
		}
		return err
	})
}

func (l *loading) runs(ctx context.Context) error {
	type coveredRun struct {
		backend.Run
		covered bool
	}
	var all []coveredRun
	for _, t := range l.logs {
		// CROSS JOIN keeps the order: a look into the index for each shard, not a walk through the
		// slice.
		query := fmt.Sprintf(`SELECT r.shard, r.commit_no, r.topic, r.epoch, r.first, r.last, r.at, %d, CASE WHEN r.commit_no > s.commit_no THEN r.packed END, r.commit_no <= s.commit_no
			FROM shard s CROSS JOIN %s r ON r.shard = s.shard AND r.commit_no > s.commit_no - %d AND r.epoch >= s.epoch`, t.class, t.name(), backend.CoveredCommits)
		if err := l.query(ctx, query, func(rows *sql.Rows) error {
			var r coveredRun
			var err error
			if r.Run, err = scanRun(rows, &r.covered); l.wanted[r.Shard] {
				all = append(all, r)
			}
			return err
		}); err != nil {
			return err
		}
	}
	slices.SortStableFunc(all, func(x, y coveredRun) int {
		return cmp.Or(cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.Commit, y.Commit), cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.First, y.First))
	})
	for _, r := range all {
		if r.covered {
			l.into.LoadCovered(r.Run)
		} else {
			l.into.LoadRun(r.Run)
		}
	}
	return nil
}
