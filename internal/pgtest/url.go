// Package pgtest gives tests a real Postgres: a database of their own on a shared server, or a
// server of their own that they may kill, pause and restart.
package pgtest

import (
	"errors"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgserver"
)

// Variable names the server that URL uses, as a superuser of it; unset, URL starts one for the test
// binary.
const Variable = "PUSHMESH_TEST_POSTGRES_URL"

// Folder names the variable with the folder of servers' data; unset, that of temporary files. In
// memory, what a test needs not prove costs it nothing: that a machine's disk keeps what it was
// told to.
const Folder = "PUSHMESH_TEST_POSTGRES_DIR"

// sharedServer is the one that this test binary started, if it had to. It is the package's only
// state: a server for each test would cost seconds each.
var sharedServer = sync.OnceValues(func() (*pgserver.Server, error) { return pgserver.StartShared(os.Getenv(Folder)) })

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
	name := pgserver.Name()
	u, err := pgserver.Role(su, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(pgserver.Exec(su, "DROP OWNED BY "+name+" CASCADE"), pgserver.Exec(su, "DROP ROLE "+name)); err != nil {
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
	made, err := pgserver.Copy(base, of)
	if err != nil {
		t.Fatalf("make a database at %s: %v", Variable, err)
	}
	t.Cleanup(func() {
		if err := pgserver.Drop(base, made, of == ""); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return made
}
