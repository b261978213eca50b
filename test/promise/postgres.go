package promise

import (
	"os"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
)

// Postgres is a server for one test, and the URL of its database for stores, as an ordinary role
// that owns it. PUSHMESH_CHAOS_POOLER=session has stores reach it through a PgBouncer in that mode,
// PUSHMESH_CHAOS_PUBLICATION=yes has a publication of all tables beside them, with wal_level
// logical, as Debezium wants it.
func Postgres(t testing.TB) (server *pgserver.Server, url string) {
	t.Helper()
	var settings []string
	published := yes(t, "PUSHMESH_CHAOS_PUBLICATION")
	if published {
		settings = append(settings, "wal_level=logical")
	}
	server = pgtest.New(t, settings...)
	url = server.URL()
	if published {
		pgtest.Exec(t, server.Superuser(), "CREATE PUBLICATION everything FOR ALL TABLES")
	}
	if mode := os.Getenv("PUSHMESH_CHAOS_POOLER"); mode != "" {
		// It tries a server that was away again at once: 15 s later are those in which nothing is
		// promised.
		url = pgtest.Pooler(t, url, mode, "server_login_retry=1")
	}
	return server, url
}

// yes reports whether a variable is set to yes.
func yes(t testing.TB, variable string) bool {
	t.Helper()
	switch s := os.Getenv(variable); s {
	case "", "no":
		return false
	case "yes":
		return true
	default:
		t.Fatalf("%s is %q, want yes or no", variable, s)
		return false
	}
}
