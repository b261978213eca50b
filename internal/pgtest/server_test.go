package pgtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, conn *pgx.Conn, sql string) (answer string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	a, b := connect(t, URL(t)), connect(t, URL(t))
	_, err := a.Exec(t.Context(), "CREATE TABLE mine (id int)")
	must(t, err)
	if ask(t, b, "SELECT count(*)::text FROM pg_tables WHERE tablename = 'mine'") != "0" {
		t.Error("the other database sees the table")
	}
}

func TestADatabaseEndsWithItsTest(t *testing.T) {
	var name string
	t.Run("inner", func(t *testing.T) { name = ask(t, connect(t, URL(t)), "SELECT current_database()") })
	if ask(t, connect(t, URL(t)), "SELECT count(*)::text FROM pg_database WHERE datname = '"+name+"'") != "0" {
		t.Errorf("%s is still there", name)
	}
}

func TestAKilledServerKeepsWhatWasCommitted(t *testing.T) {
	s := New(t)
	conn := connect(t, s.URL())
	if ask(t, conn, "SHOW fsync") != "on" {
		t.Fatal("fsync is off")
	}
	_, err := conn.Exec(t.Context(), "CREATE TABLE kept (id int)")
	must(t, err)
	must(t, s.Kill())
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("it still answers")
	}
	must(t, s.Restart())
	if ask(t, connect(t, s.URL()), "SELECT count(*)::text FROM pg_tables WHERE tablename = 'kept'") != "1" {
		t.Error("a committed table is gone")
	}
	must(t, s.Stop())
	must(t, s.Stop()) // again: nothing to do
}

func TestAPausedServerHangsAndGoesOn(t *testing.T) {
	s := New(t)
	conn := connect(t, s.URL())
	must(t, s.Pause())
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(context.Background()) }()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, s.Resume())
	must(t, <-answered)
}

func TestAServerEndsWithItsTest(t *testing.T) {
	var url, dir string
	t.Run("inner", func(t *testing.T) {
		s := New(t)
		url, dir = s.URL(), s.Dir()
	})
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		_ = conn.Close(t.Context())
		t.Error("it still answers")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}
