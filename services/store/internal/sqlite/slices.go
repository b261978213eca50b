package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	logKind = "log"
	keyKind = "key"
)

// sliceTable is the table of one slice.
type sliceTable struct {
	kind  string
	class uint8
	backend.Slice
}

func logSlice(c backend.Class, s backend.Slice) sliceTable { return sliceTable{logKind, uint8(c), s} }

func keySlice(c backend.KeyClass, s backend.Slice) sliceTable {
	return sliceTable{keyKind, uint8(c), s}
}

func (s sliceTable) name() string {
	if s.kind == logKind {
		return fmt.Sprintf("log_%s_%d", backend.Class(s.class), s.Start)
	}
	return fmt.Sprintf("key_%s_%d", backend.KeyClass(s.class), s.Start)
}

func (s sliceTable) columns() int {
	if s.kind == logKind {
		return 8
	}
	return 7
}

// verb: a key may come again in the same slice, once its time was over. OR ROLLBACK spares a log's
// rows the journal that SQLite keeps so that it could undo one statement alone; a batch is undone
// whole.
func (s sliceTable) verb() string {
	if s.kind == logKind {
		return "INSERT OR ROLLBACK"
	}
	return "INSERT OR REPLACE"
}

func (s sliceTable) over(now uint64) bool {
	if s.kind == keyKind {
		return s.End <= now
	}
	return s.End+uint64(backend.Class(s.class).Keep().Microseconds()) <= now
}

// makeSlice makes the table. A log's rows are found by topic and seq, and by shard and commit.
func makeSlice(ctx context.Context, tx *sql.Tx, s sliceTable) error {
	name := s.name()
	statements := []string{
		"INSERT OR IGNORE INTO slice (kind, class, starts, ends) VALUES (?, ?, ?, ?)",
		"CREATE TABLE IF NOT EXISTS " + name + ` (shard INTEGER NOT NULL, commit_no INTEGER NOT NULL, topic TEXT NOT NULL, epoch INTEGER NOT NULL,
			first INTEGER NOT NULL, last INTEGER NOT NULL, at INTEGER NOT NULL, packed BLOB NOT NULL)`,
		"CREATE INDEX IF NOT EXISTS " + name + "_topic ON " + name + " (topic, epoch, last, at)",
		"CREATE INDEX IF NOT EXISTS " + name + "_commit ON " + name + " (shard, commit_no)",
	}
	if s.kind == keyKind {
		statements = append(statements[:1], "CREATE TABLE IF NOT EXISTS "+name+` (hash BLOB PRIMARY KEY, shard INTEGER NOT NULL, epoch INTEGER NOT NULL,
			seq INTEGER NOT NULL, message_id BLOB NOT NULL, published_at INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID`)
	}
	args := []any{s.kind, s.class, int64(s.Start), int64(s.End)}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return fmt.Errorf("sqlite: make %s: %w", name, err)
		}
		args = nil
	}
	return nil
}

// sliceSet is the set of tables that there are. Readers hold mu while they use a table's name, so
// that none is dropped under them.
type sliceSet struct {
	mu  sync.RWMutex
	all []sliceTable
}

func (s *sliceSet) has(t sliceTable) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Contains(s.all, t)
}

func (s *sliceSet) add(ts []sliceTable) {
	if len(ts) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range ts {
		if !slices.Contains(s.all, t) {
			s.all = append(s.all, t)
		}
	}
}

func (s *sliceSet) remove(t sliceTable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(have sliceTable) bool { return have == t })
}

// of is the tables of a kind that end after a time. mu is held.
func (s *sliceSet) of(kind string, endAfter uint64) (ts []sliceTable) {
	for _, t := range s.all {
		if t.kind == kind && t.End > endAfter {
			ts = append(ts, t)
		}
	}
	return ts
}

func (s *sliceSet) load(ctx context.Context, db *sql.DB) error {
	found, err := listSlices(ctx, db, "WHERE dropping = 0")
	s.add(found)
	return err
}

func listSlices(ctx context.Context, db *sql.DB, where string) ([]sliceTable, error) {
	return collect(ctx, db, func(rows *sql.Rows) (t sliceTable, err error) {
		err = rows.Scan(&t.kind, &t.class, &t.Start, &t.End)
		return t, err
	}, "SELECT kind, class, starts, ends FROM slice "+where)
}

// collect reads every row by one.
func collect[R any](ctx context.Context, q querier, one func(*sql.Rows) (R, error), query string, args ...any) (all []R, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite: query: %w", err)
	}
	err = scan(rows, func() error {
		r, err := one(rows)
		all = append(all, r)
		return err
	})
	return all, err
}

// value reads a row of one column.
func value[V any](rows *sql.Rows) (v V, err error) {
	err = rows.Scan(&v)
	return v, err
}

// scan calls each for every row, and closes rows.
func scan(rows *sql.Rows, each func() error) error {
	defer func() { _ = rows.Close() }() // its error is that of Err
	for rows.Next() {
		if err := each(); err != nil {
			return fmt.Errorf("sqlite: row: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("sqlite: rows: %w", err)
	}
	return nil
}
