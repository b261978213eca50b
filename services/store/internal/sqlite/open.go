// Package sqlite keeps the store's data in one SQLite file, for one process: development and small
// installations.
//
// One connection writes (every commit is fsynced: synchronous=FULL), a few read. Log rows and
// dedupe keys lie in a table for each slice of time, so that retention drops tables instead of
// searching for rows.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

//go:embed migrations/*.sql
var migrations embed.FS

// readers is how many connections read at a time.
const readers = 4

// Backend is one SQLite file. The process that opened it owns it, by a lock on a file beside it.
type Backend struct {
	write *sql.DB // one connection
	read  *sql.DB
	lock  *os.File

	owners owners
	slices sliceSet
	swept  sweeping
	full   atomic.Pointer[error] // why nothing can be written (a full disk); nil: it can

	closing  sync.Once
	closeErr error
}

var _ backend.Backend = (*Backend)(nil)

// Open opens the database in the file path, making it where there is none.
func Open(ctx context.Context, path string) (*Backend, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	b := &Backend{lock: lock}
	b.owners.init()
	if err := b.open(ctx, path); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Backend) open(ctx context.Context, path string) error {
	var err error
	if b.write, err = connect(path, 1, "_txlock=immediate&_pragma=wal_autocheckpoint(4000)"); err != nil {
		return err
	}
	if err := migrate(ctx, b.write); err != nil {
		return err
	}
	if b.read, err = connect(path, readers, "_pragma=query_only(1)"); err != nil {
		return err
	}
	if err := seedShards(ctx, b.write, uint64(time.Now().UnixMicro())); err != nil {
		return err
	}
	if _, err := b.write.ExecContext(ctx, "DELETE FROM claim_run"); err != nil {
		// of a process that is gone
		return fmt.Errorf("sqlite: end writers of claims: %w", err)
	}
	return b.slices.load(ctx, b.write)
}

func connect(path string, conns int, options string) (*sql.DB, error) {
	const common = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=cache_size(-16000)&"
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+common+options)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// migrate brings the schema up to date. Steps that this version does not know are no fault: they
// only add, unless user_version says that the schema needs a store which knows that step.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return fmt.Errorf("sqlite: migrations: %w", err)
	}
	var needs int64
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&needs); err != nil {
		return fmt.Errorf("sqlite: look at the schema: %w", err)
	}
	all := provider.ListSources() // by number
	if known := all[len(all)-1].Version; needs > known {
		return fmt.Errorf("sqlite: the file's schema is of a later version, whose stores know step %05d; this one knows steps up to %05d: "+
			"start a later version, or restore the backup from before the upgrade", needs, known)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return nil
}

// seedShards gives every shard of a new database its first epoch: now.
func seedShards(ctx context.Context, db *sql.DB, now uint64) error {
	const insert = "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < ?) INSERT OR IGNORE INTO shard (shard, epoch, commit_no) SELECT n, ?, 0 FROM s"
	return inTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insert, topic.Shards-1, int64(now))
		return err
	})
}

func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: another process has this database open (%s): %w", path, err), f.Close())
	}
	return f, nil
}

// inTx runs f in one write transaction.
func inTx(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit: %w", err)
	}
	return nil
}

// inSnapshot runs f, which only reads, on one state of the database.
func inSnapshot(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	return errors.Join(f(tx), tx.Rollback())
}

// Close ends every writer, the connections, and gives the file back.
func (b *Backend) Close() error {
	b.closing.Do(func() {
		b.owners.fence(func(backend.Owner) bool { return true })
		var errs []error
		for _, db := range []*sql.DB{b.read, b.write} {
			if db != nil {
				errs = append(errs, db.Close())
			}
		}
		b.closeErr = errors.Join(append(errs, b.lock.Close())...)
	})
	return b.closeErr
}
