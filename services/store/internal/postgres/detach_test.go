package postgres

import (
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/housekeeping"
)

// An edge that is gone held so many sessions that one statement could not let go of them in the
// time that it has. They are let go all the same, each row written about once: statements that are
// undone would leave as many dead rows as they had written.
func TestAnEdgeWithManySessionsIsLetGo(t *testing.T) {
	t.Parallel()
	const sessions = 20_000
	db := pgtest.URL(t)
	need(t, openWith(t, Config{URL: db, Patience: backendtest.Patience}).Close())
	pgtest.Exec(t, db, `INSERT INTO pushmesh.session (user_id, name, generation, connection_id, attached_at, expires_at, ttl, edge)
		SELECT 'user-' || i, 'phone', 1, i, 1, 0, 3600000000, 'gone' FROM generate_series(1, $1::int) AS i`, sessions)
	// The disk is slow: a tenth of a millisecond for each session, two seconds for all.
	pgtest.Exec(t, db, `CREATE SEQUENCE written`)
	pgtest.Exec(t, db, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('public.written') % 10 = 0 THEN PERFORM pg_sleep(0.001); END IF;
			RETURN NEW;
		END $$`)
	pgtest.Exec(t, db, `CREATE TRIGGER slow BEFORE UPDATE ON pushmesh.session FOR EACH ROW EXECUTE FUNCTION slow()`)
	u, err := url.Parse(db)
	need(t, err)
	q := u.Query()
	q.Set("statement_timeout", "1000")
	u.RawQuery = q.Encode()
	d := openWith(t, Config{URL: u.String(), Patience: backendtest.Patience})
	if n, err := d.DetachEdge(t.Context(), "gone", now(), sessions); err == nil {
		t.Fatalf("%d sessions were let go in one statement: it was not slow", n)
	}
	pgtest.Exec(t, db, `ALTER SEQUENCE written RESTART`)
	keeper := housekeeping.New(housekeeping.Config{Backend: d, Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	for deadline := time.Now().Add(backendtest.Patience); ; {
		err := keeper.LetGoOf(t.Context(), []string{"gone"})
		edges, edgesErr := d.SessionEdges(t.Context())
		need(t, edgesErr)
		if len(edges) == 0 {
			need(t, err)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("sessions are held still: %v", err)
		}
	}
	conn, err := pgx.Connect(t.Context(), db)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	var written, detached int
	need(t, conn.QueryRow(t.Context(), `SELECT last_value, (SELECT count(*) FROM pushmesh.session WHERE edge = '' AND connection_id = 0 AND expires_at > ttl) FROM written`).Scan(&written, &detached))
	if detached != sessions || written > sessions*3/2 {
		t.Errorf("%d of %d sessions begin their TTL, %d rows were written", detached, sessions, written)
	}
}

// A session that is being changed is let be, and nobody waits for it; where it is attached
// elsewhere it stays there.
func TestSessionsThatChangeAreNotLetGo(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	d := open(t, db)
	for _, name := range []string{"idle", "written", "moved"} {
		_, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: name, EdgeId: "gone"}, backend.Quota{}, 1000)
		need(t, err)
	}
	conn, err := pgx.Connect(t.Context(), db)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	need(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE pushmesh.session SET edge = CASE name WHEN 'moved' THEN 'other' ELSE edge END, generation = generation + 1 WHERE name <> 'idle'`)
	need(t, err)
	detach := func(want int) {
		t.Helper()
		n, err := d.DetachEdge(t.Context(), "gone", 2000, 3)
		need(t, err)
		if n != want {
			t.Errorf("%d sessions were let go, want %d", n, want)
		}
	}
	detach(1)
	need(t, tx.Commit(t.Context()))
	detach(1)
	detach(0)
	edges, err := d.SessionEdges(t.Context())
	need(t, err)
	if !slices.Equal(edges, []string{"other"}) {
		t.Errorf("sessions are held by %v, want other", edges)
	}
}
