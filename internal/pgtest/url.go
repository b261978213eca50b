// Package pgtest gives tests a real Postgres: a database of their own on a shared server, or a server of their own that
// they may kill, pause and restart.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Variable names the server that URL uses; unset, URL starts one for the test binary.
const Variable = "PUSHMESH_TEST_POSTGRES_URL"

// sharedServer is the one that this test binary started, if it had to. It is the package's only state: a server for each test would
// cost seconds each.
var sharedServer = sync.OnceValues(startShared)

// URL of an empty database that is dropped when the test ends. Without any Postgres to be had the test fails.
func URL(t testing.TB) string {
	t.Helper()
	base := os.Getenv(Variable)
	if base == "" {
		s, err := sharedServer()
		if err != nil {
			t.Fatalf("no Postgres for the test: set %s or install Debian's postgresql: %v", Variable, err)
		}
		base = s.URL()
	}
	return made(t, base, "")
}

// Copy is URL, but the database has what another one has, to which nobody may be connected.
func Copy(t testing.TB, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	template := u.Path[1:]
	u.Path = "/postgres"
	return made(t, u.String(), template)
}

// made makes a database for a test.
func made(t testing.TB, base, template string) string {
	t.Helper()
	made, err := database(base, template)
	if err != nil {
		t.Fatalf("make a database at %s: %v", Variable, err)
	}
	t.Cleanup(func() {
		if err := drop(base, made); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return made
}

// Database makes an empty database on the server at base and returns its URL.
func Database(base string) (string, error) { return database(base, "") }

// database is a copy of template; "": of the server's own.
func database(base, template string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("postgres url: %w", err)
	}
	raw := make([]byte, 8)
	_, _ = rand.Read(raw)
	name := "pushmesh_test_" + hex.EncodeToString(raw)
	sql := "CREATE DATABASE " + name
	if template != "" {
		sql += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	if err := exec1(base, sql); err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func drop(base, made string) error {
	u, err := url.Parse(made)
	if err != nil {
		return err
	}
	return exec1(base, "DROP DATABASE IF EXISTS "+pgx.Identifier{u.Path[1:]}.Sanitize()+" WITH (FORCE)")
}

// servedWithin bounds what a busy server may take for one statement.
const servedWithin = 3 * time.Minute

// exec1 runs one statement, again where only others stood in its way.
func exec1(base, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), servedWithin)
	defer cancel()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		err := once(ctx, base, sql)
		if err == nil || !crowded(err) {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return err
		}
	}
}

func once(ctx context.Context, base, sql string) error {
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	_ = conn.Close(ctx)
	return err
}

// crowded says whether a busy server refused because of others: a vacuum in the template that is copied, a session that has not ended yet in the
// database that is dropped (both are waited for, but only for seconds), no connection left.
func crowded(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55006" || pg.Code == "53300") // object_in_use, too_many_connections
}

// startShared starts a server that ends with this process, however it ends: a shell waits for the end of a pipe that
// only this process holds, stops the server and removes its folder.
func startShared() (*Server, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	s, err := Start(dir, 0)
	if err != nil {
		return nil, err
	}
	const script = `cat >/dev/null; kill -INT "$1"; while kill -0 "$1" 2>/dev/null; do sleep 0.05; done; rm -rf -- "$2"`
	reaper := exec.Command("/bin/sh", "-c", script, "sh", strconv.Itoa(s.pid()), dir) // #nosec G204 -- all of it is ours
	reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                          // a Ctrl-C is not for it
	if s.lifeline, err = reaper.StdinPipe(); err != nil {
		return nil, err
	}
	return s, reaper.Start()
}
