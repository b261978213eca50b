package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// An administrator's timeouts for a role or a database are meant for people and applications: a
// store bounds what it does itself, and what it does in the background takes as long as it takes.
func TestTimeoutsOfAnAdministratorAreNotTheStores(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	execute(t, pg.Superuser(),
		`ALTER ROLE store SET statement_timeout = '20ms'`, `ALTER DATABASE postgres SET lock_timeout = '20ms'`, `ALTER SYSTEM SET idle_session_timeout = '100ms'`,
		`SELECT pg_reload_conf()`)
	d := openWith(t, Config{URL: pg.URL(), Patience: backendtest.Patience})
	need(t, d.MakeSlices(t.Context(), now()))
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	need(t, d.Do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `SELECT pg_sleep(0.2)`) // longer than each
		return err
	}))
	need(t, w.Commit(t.Context(), batch(3, h.epoch[3], 1)))
	slow := batch(3, h.epoch[3], 2)
	execute(t, pg.URL(),
		`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$`,
		`CREATE TRIGGER slow BEFORE INSERT ON pushmesh.batch FOR EACH ROW EXECUTE FUNCTION slow()`)
	need(t, w.Commit(t.Context(), slow))

	// The URL is the operator's own, and what it says of a timeout holds.
	u := pg.URL() + "&statement_timeout=20"
	own := openWith(t, Config{URL: u, Patience: backendtest.Patience})
	err = own.Do(t.Context(), func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `SELECT pg_sleep(1)`)
		return err
	})
	if server.SQLState(err) != server.QueryCanceled {
		t.Errorf("the URL's own timeout: %v", err)
	}
	// Migrations, and whatever else has a connection of its own.
	conn, err := d.Connect(t.Context(), "test", nil)
	need(t, err)
	defer conn.Lose()
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout"} {
		var is string
		need(t, conn.QueryRow(t.Context(), `SELECT current_setting($1)`, pgx.QueryExecModeSimpleProtocol, name).Scan(&is))
		if is != "0" {
			t.Errorf("%s is %s", name, is)
		}
	}
}
