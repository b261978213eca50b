// Package pgtest gives tests a real Postgres: a database of their own on a shared server, or a
// server of their own that they may kill, pause and restart.
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Variable names the server that URL uses, as a superuser of it; unset, URL starts one for the test
// binary.
const Variable = "PUSHMESH_TEST_POSTGRES_URL"

// sharedServer is the one that this test binary started, if it had to. It is the package's only
// state: a server for each test would cost seconds each.
var sharedServer = sync.OnceValues(startShared)

// URL of an empty database that is dropped when the test ends, as an ordinary role that owns it and
// nothing else: what operators give a store. Without any Postgres to be had the test fails.
func URL(t testing.TB) string {
	t.Helper()
	return made(t, superuser(t), "")
}

// Copy is URL, but the database has what another one of URL has, to which nobody may be connected.
// The role is the other's.
func Copy(t testing.TB, of string) string {
	t.Helper()
	return made(t, superuser(t), of)
}

// Another is the URL of a database of URL for one more role, which may log in and nothing else. It
// ends with the test, and with it what it owns.
func Another(t testing.TB, of string) string {
	t.Helper()
	su := Superuser(t, of)
	name := "pushmesh_test_" + random()
	u, err := role(su, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(exec1(su, "DROP OWNED BY "+name+" CASCADE"), exec1(su, "DROP ROLE "+name)); err != nil {
			t.Errorf("drop the test's role: %v", err)
		}
	})
	return u.String()
}

// Superuser is a URL for the superuser of the server that a URL of this package leads to, in the
// same database.
func Superuser(t testing.TB, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(superuser(t))
	if err != nil {
		t.Fatal(err)
	}
	base.Path = u.Path
	return base.String()
}

// superuser's URL of the server that databases for tests are made on.
func superuser(t testing.TB) string {
	t.Helper()
	if base := os.Getenv(Variable); base != "" {
		return base
	}
	s, err := sharedServer()
	if err != nil {
		t.Fatalf("no Postgres for the test: set %s or install Debian's postgresql: %v", Variable, err)
	}
	return s.Superuser()
}

// made makes a database for a test, with a role that ends with it where it is not a copy.
func made(t testing.TB, base, of string) string {
	t.Helper()
	made, err := database(base, of)
	if err != nil {
		t.Fatalf("make a database at %s: %v", Variable, err)
	}
	t.Cleanup(func() {
		if err := drop(base, made, of == ""); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return made
}

// Database makes an empty database on the server at base, a superuser's URL, and returns the URL of
// the role that owns it.
func Database(base string) (string, error) { return database(base, "") }

// database is a copy of another one and its role's; "": of the server's own, with a role of its
// own.
func database(base, of string) (string, error) {
	var u *url.URL
	var err error
	name := "pushmesh_test_" + random()
	owner, template := name, ""
	if of == "" {
		u, err = role(base, owner)
	} else if u, err = url.Parse(of); err == nil {
		owner, template = u.User.Username(), " TEMPLATE "+pgx.Identifier{u.Path[1:]}.Sanitize()
	}
	if err != nil {
		return "", err
	}
	if err := exec1(base, "CREATE DATABASE "+name+" OWNER "+pgx.Identifier{owner}.Sanitize()+template); err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func random() string {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

// role makes a role that may log in and nothing else, with the password that base has, and returns
// base's URL for it.
func role(base, name string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("postgres url: %w", err)
	}
	sql := "CREATE ROLE " + pgx.Identifier{name}.Sanitize() + " LOGIN"
	user := url.User(name)
	if password, has := u.User.Password(); has {
		sql += " PASSWORD '" + strings.ReplaceAll(password, "'", "''") + "'"
		user = url.UserPassword(name, password)
	}
	u.User = user
	return u, exec1(base, sql)
}

// drop a database, and the role that owns it where that is its own.
func drop(base, made string, own bool) error {
	u, err := url.Parse(made)
	if err != nil {
		return err
	}
	err = exec1(base, "DROP DATABASE IF EXISTS "+pgx.Identifier{u.Path[1:]}.Sanitize()+" WITH (FORCE)")
	if err == nil && own {
		err = exec1(base, "DROP ROLE "+pgx.Identifier{u.User.Username()}.Sanitize())
	}
	return err
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

// crowded reports whether a busy server refused because of others: a vacuum in the template that is
// copied, a session that has not ended yet in the database that is dropped (both are waited for,
// but only for seconds), no connection left.
func crowded(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55006" || pg.Code == "53300") // object_in_use, too_many_connections
}

// startShared starts a server that ends with this process, however it ends: a shell waits for the
// end of a pipe that only this process holds, stops the server and removes its folder.
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
	// #nosec G204 -- all of it is ours
	reaper := exec.Command("/bin/sh", "-c", script, "sh", strconv.Itoa(s.pid()), dir)
	// a Ctrl-C is not for it
	reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.lifeline, err = reaper.StdinPipe(); err != nil {
		return nil, err
	}
	return s, reaper.Start()
}
