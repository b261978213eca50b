package postgres

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
)

// open has a database that is only slow answer in its own time: nothing but a broken connection is
// a fault.
func open(t *testing.T, url string) *DB {
	t.Helper()
	return openWith(t, Config{URL: url, Patience: backendtest.Patience})
}

// openWith opens as a store does.
func openWith(t *testing.T, cfg Config) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
	defer cancel()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := Open(ctx, cfg)
	need(t, err)
	t.Cleanup(func() { need(t, d.Close()) })
	return d
}

// It works as a role that may change no schema, beside a publication of all tables, as Debezium and
// upgrades by logical replication make it.
func TestConformance(t *testing.T) {
	owner := ofVersion(t)
	role := pgtest.Another(t, owner)
	execute(t, pgtest.Superuser(t, owner), `CREATE PUBLICATION everything FOR ALL TABLES`)
	need(t, openWith(t, Config{URL: role, OwnerURL: owner, Patience: backendtest.Patience}).Close())
	conforms(t, owner, role)
}

// As the role that owns the database, and may do nothing else on its server.
func TestConformanceOfAnOwner(t *testing.T) {
	t.Parallel()
	owner := ofVersion(t)
	need(t, open(t, owner).Close())
	conforms(t, owner, owner)
}

// What is prepared, locked and set stays a session's behind a pooler in session mode.
func TestConformanceBehindAPooler(t *testing.T) {
	t.Parallel()
	owner := ofVersion(t)
	need(t, open(t, owner).Close())
	conforms(t, owner, pgtest.Pooler(t, pgtest.Copy(t, owner), "session"))
}

// ofVersion is an empty database, of the version of Postgres that the tests were told to run with.
func ofVersion(t *testing.T) string {
	t.Helper()
	url := pgtest.URL(t)
	conn := connected(t, url)
	var version string
	need(t, conn.QueryRow(t.Context(), `SELECT (current_setting('server_version_num')::int / 10000)::text`).Scan(&version))
	if want := os.Getenv(pgserver.Version); want != "" && version != want {
		t.Fatalf("Postgres %s, and %s=%s", version, pgserver.Version, want)
	}
	need(t, conn.Close(t.Context()))
	return url
}

// conforms runs the suite in copies of a database that is migrated, and reaches them by another URL
// of it.
func conforms(t *testing.T, owner, by string) {
	backendtest.Run(t, func(t *testing.T) backendtest.Database {
		url := at(t, by, pgtest.Copy(t, owner))
		return func(t *testing.T) backend.Backend {
			t.Helper()
			return former{open(t, url), url}
		}
	})
}

// at is a URL in the database of another one.
func at(t *testing.T, role, database string) string {
	t.Helper()
	u, err := url.Parse(role)
	need(t, err)
	other, err := url.Parse(database)
	need(t, err)
	u.Path = other.Path
	return u.String()
}

// former is a backendtest.Former.
type former struct {
	*DB
	url string
}

func (f former) ForgetUse(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), f.url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(t.Context(), "UPDATE pushmesh.session SET used = false")
	need(t, err)
}
