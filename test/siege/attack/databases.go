package attack

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgserver"
)

func withoutPostgres(t *Target) string {
	if t.Postgres != "" {
		return ""
	}
	return "the store has no Postgres"
}

func withoutDisk(t *Target) string {
	if t.Disk != "" {
		return ""
	}
	return "no file system can be mounted here"
}

func databases() []Attack {
	return []Attack{{
		Name: "postgres-locks", What: "somebody locks every table of the store for 2 s, again and again", Metric: "pushmesh_store_database_stalls_total", Unless: withoutPostgres,
		Run: locks,
	}, {
		Name: "postgres-slow", What: "each commit of Postgres takes 100 ms longer, as on a slow disk", Metric: "pushmesh_store_commit_seconds_sum", Unless: withoutPostgres,
		Run: slowCommits,
	}, {
		Name: "postgres-disk-full", What: "the file system of the store's tables is full", Metric: "pushmesh_store_commit_failures_total", Unless: withoutDisk,
		Run: func(ctx context.Context, t *Target, c *Codes) error {
			path := filepath.Join(t.Disk, "ballast")
			defer func() { _ = os.Remove(path) }()
			for ctx.Err() == nil {
				if err := errors.Join(fill(path), full(ctx, c), os.Remove(path)); err != nil {
					return err
				}
				pause(ctx, 2*time.Second)
			}
			return nil
		},
	}, {
		Name: "postgres-log-full", What: "the file system of Postgres's own log is full, which ends Postgres", Metric: "pushmesh_store_commit_failures_total", Unless: withoutDisk, Alone: true,
		Run: fullLog,
	}}
}

// lockAll locks every table, and holds it for 2 s.
const lockAll = `DO $$ DECLARE t record; BEGIN
	SET LOCAL lock_timeout = '2s';
	FOR t IN SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) AS name FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') LOOP
		EXECUTE 'LOCK TABLE ' || t.name || ' IN ACCESS EXCLUSIVE MODE';
	END LOOP;
	PERFORM pg_sleep(2);
END $$`

func locks(ctx context.Context, t *Target, c *Codes) error {
	for ctx.Err() == nil {
		if err := pgserver.Exec(t.Database, lockAll); err != nil {
			c.Note("could not lock")
		} else {
			c.Note("locked")
		}
		pause(ctx, 2*time.Second)
	}
	return nil
}

// slowCommits has the server wait before each flush of its log, as long as it may.
func slowCommits(ctx context.Context, t *Target, c *Codes) (err error) {
	set := func(all ...string) (err error) {
		for _, sql := range append(all, "SELECT pg_reload_conf()") {
			err = errors.Join(err, pgserver.Exec(t.Postgres, sql))
		}
		return err
	}
	defer func() {
		err = errors.Join(err, set("ALTER SYSTEM RESET commit_delay", "ALTER SYSTEM RESET commit_siblings"))
	}()
	if err := set("ALTER SYSTEM SET commit_delay = 100000", "ALTER SYSTEM SET commit_siblings = 0"); err != nil {
		return err
	}
	c.Note("commits delayed")
	<-ctx.Done()
	return nil
}

// fullLog uses up what Postgres has set aside for its log, too, until it has ended.
func fullLog(ctx context.Context, t *Target, c *Codes) error {
	path := filepath.Join(t.Log, "ballast")
	err := fill(path)
	c.Note("filled")
	for err == nil && ctx.Err() == nil {
		if pgserver.Exec(t.Postgres, "SELECT pg_logical_emit_message(false, 'siege', repeat('x', 8000000))") == nil {
			c.Note("8 MB logged")
			continue
		}
		c.Note("Postgres does not answer")
		pause(ctx, time.Second)
	}
	return errors.Join(err, os.Remove(path))
}

// full leaves no room for a while.
func full(ctx context.Context, c *Codes) error {
	c.Note("filled")
	pause(ctx, 5*time.Second)
	return nil
}

func fill(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for piece := bytes.Repeat([]byte{1}, 1<<20); len(piece) > 0; {
		if _, err := f.Write(piece); errors.Is(err, syscall.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}
