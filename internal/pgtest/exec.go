package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Exec runs one statement and returns how many rows it touched.
func Exec(t testing.TB, url, sql string, args ...any) int64 {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	tag, err := conn.Exec(ctx, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	return tag.RowsAffected()
}

// Terminate ends the database's backends that fulfil a condition on pg_stat_activity, and waits
// until they are gone. There must be one sooner or later.
func Terminate(t testing.TB, url, which string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); Exec(t, url, `
		WITH those AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND `+which+`)
		SELECT FROM those WHERE pg_terminate_backend(pid, 120000)`) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("no backend to end: %s", which)
		}
	}
}
