package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// rowsPerInsert bounds one INSERT: SQLite allows 32,766 parameters, and its parser's time grows
// with the rows.
const rowsPerInsert = 64

// insert writes everything of a batch, and says which slices it had to make.
func (b *Backend) insert(ctx context.Context, tx *sql.Tx, batch *backend.Batch) (made []sliceTable, err error) {
	if _, err := tx.ExecContext(ctx, "INSERT INTO batch VALUES (?, ?)", batch.ID[:], int64(batch.At)); err != nil {
		return nil, fmt.Errorf("sqlite: batch: %w", err)
	}
	rows := map[sliceTable]*inserter{}
	table := func(s sliceTable) (*inserter, error) {
		if in := rows[s]; in != nil {
			return in, nil
		}
		if !b.slices.has(s) {
			if err := makeSlice(ctx, tx, s); err != nil {
				return nil, err
			}
			made = append(made, s)
		}
		in := &inserter{tx: tx, verb: s.verb(), table: s.name(), columns: s.columns()}
		rows[s] = in
		return in, nil
	}
	for i := range batch.Runs {
		r := &batch.Runs[i]
		in, err := table(logSlice(r.Class, r.Class.Slice(r.At)))
		if err != nil {
			return nil, err
		}
		if err := in.add(ctx, r.Shard, int64(r.Commit), r.Topic, int64(r.Epoch), int64(r.First), int64(r.Last()), int64(r.At), r.Packed); err != nil {
			return nil, err
		}
	}
	for i := range batch.Keys {
		k := &batch.Keys[i]
		in, err := table(keySlice(k.Class, k.Class.Slice(k.Until)))
		if err != nil {
			return nil, err
		}
		if err := in.add(ctx, k.Hash[:], k.Shard, int64(k.Epoch), int64(k.Seq), k.MessageID[:], int64(k.PublishedAt), int64(k.Until)); err != nil {
			return nil, err
		}
	}
	marks := &inserter{tx: tx, verb: "INSERT", table: "producer_mark", columns: 8}
	for i := range batch.Marks {
		m := &batch.Marks[i]
		if err := marks.add(ctx, m.Shard, int64(m.Commit), m.Topic, m.ID[:], int64(m.ProducerSeq), int64(m.Epoch), int64(m.Seq), int64(m.At)); err != nil {
			return nil, err
		}
	}
	for _, in := range rows {
		if err := in.flush(ctx); err != nil {
			return nil, err
		}
	}
	if err := marks.flush(ctx); err != nil {
		return nil, err
	}
	if _, err := discardLetters(ctx, tx, batch.Letters); err != nil {
		return nil, err
	}
	if err := markCopied(ctx, tx, batch.Copied); err != nil {
		return nil, err
	}
	if err := moveKept(ctx, tx, batch.Kept, batch.Unkept); err != nil {
		return nil, err
	}
	return made, moveScheduled(ctx, tx, batch)
}

// inserter gathers rows of one table into INSERTs of many rows.
type inserter struct {
	tx      *sql.Tx
	verb    string
	table   string
	columns int
	args    []any
}

func (in *inserter) add(ctx context.Context, row ...any) error {
	in.args = append(in.args, row...)
	if len(in.args) < rowsPerInsert*in.columns {
		return nil
	}
	return in.flush(ctx)
}

func (in *inserter) flush(ctx context.Context) error {
	if len(in.args) == 0 {
		return nil
	}
	row := "(?" + strings.Repeat(",?", in.columns-1) + ")"
	query := in.verb + " INTO " + in.table + " VALUES " + row + strings.Repeat(","+row, len(in.args)/in.columns-1)
	if _, err := in.tx.ExecContext(ctx, query, in.args...); err != nil {
		return fmt.Errorf("sqlite: insert into %s: %w", in.table, err)
	}
	in.args = in.args[:0]
	return nil
}
