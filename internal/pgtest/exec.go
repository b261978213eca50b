package pgtest

import (
	"context"
	"testing"

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
