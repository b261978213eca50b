package postgres

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// refusedOpen wants that no store starts with a role, and says why.
func refusedOpen(t *testing.T, url string) string {
	t.Helper()
	d, err := Open(t.Context(), Config{URL: url, Patience: backendtest.Patience})
	if err == nil {
		need(t, d.Close())
		t.Fatal("a store starts")
	}
	return err.Error()
}

// A role that may change no schema is enough for a store, once the owner's has migrated: stores
// that start together, with the owner's role beside their own, agree; and nothing that the role is
// granted lets it change the schema, or take away anything but old slices.
func TestARoleWithoutDDLIsEnough(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	for _, want := range []string{"store --migrate-only", `"` + user(t, role) + `"`, "PUSHMESH_DB_OWNER"} {
		if said := refusedOpen(t, role); !strings.Contains(said, want) {
			t.Errorf("of an empty database it says %q, without %q", said, want)
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := Migrate(t.Context(), Config{URL: role, OwnerURL: owner, Patience: backendtest.Patience}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	d := open(t, role)
	if d.Owns() {
		t.Error("the role owns the schema")
	}
	at := now()
	need(t, d.MakeSlices(t.Context(), at))
	topics := backendtest.OpenLog(t, d, backend.Owner{StoreID: "a", Incarnation: 1, Address: "a:1"}, 1, time.Now)
	topics.WaitReady(t)
	topics.Append(t, backendtest.Item("room/1", "x"))
	topics.Close(t)
	o := openOutbox(t, d, "a")
	execute(t, owner, `SELECT pushmesh.publish('room/1', 'x')`)
	settle(t, o)
	if s, err := o.Rotate(t.Context(), 0, 0); err != nil || s.Blocked {
		t.Errorf("the outbox is rotated: %+v, %v", s, err)
	}
	need(t, d.FoldCursors(t.Context(), backend.FoldAll))
	before, _ := countSlices(t, owner)
	if n, err := d.DropSlices(t.Context(), at+uint64((365*24*time.Hour).Microseconds())); err != nil || n == 0 {
		t.Errorf("%d slices dropped: %v", n, err)
	} else if after, leaving := countSlices(t, owner); after != before-n || leaving != 0 {
		t.Errorf("%d of %d slices dropped, and %d are left, %d on their way out", n, before, after, leaving)
	}
	need(t, d.MakeSlices(t.Context(), at))

	conn, err := pgx.Connect(t.Context(), role)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	for _, sql := range []string{
		`CREATE TABLE pushmesh.mine (x int)`, `CREATE TABLE public.mine (x int)`, `CREATE SCHEMA mine`, `CREATE FUNCTION pushmesh.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		`ALTER TABLE pushmesh.session ADD COLUMN mine int`, `ALTER TABLE pushmesh.log_day DETACH PARTITION pushmesh.log_day_0`, `CREATE INDEX ON pushmesh.session (ttl)`,
		`DROP TABLE pushmesh.session`, `DROP SCHEMA pushmesh CASCADE`, `DROP FUNCTION pushmesh.make_slice`, `TRUNCATE pushmesh.session`, `DROP TABLE pushmesh_migration`,
		`INSERT INTO pushmesh_migration (version_id, is_applied) VALUES (99999, true)`, `CREATE TRIGGER mine AFTER INSERT ON pushmesh.session EXECUTE FUNCTION pushmesh.session_came()`,
		`SELECT pushmesh.make_slice('session', 0, 1)`, `SELECT pushmesh.make_slice('batch (x int); DROP TABLE pushmesh.session; --', 0, 1)`, `SELECT pushmesh.make_slice('batch', 5, 5)`,
		`SELECT pushmesh.make_slice('log_none', 0, 1)`, `SELECT pushmesh.tell_slices('session')`, `SELECT pushmesh.empty_slice('session')`, `SELECT pushmesh.empty_slice('scheduled_0')`, `SELECT pushmesh.detach_slice('session')`, `SELECT pushmesh.drop_slice('session')`, `SELECT pushmesh.drop_slice('batch_0"; DROP TABLE pushmesh.session; --_0')`,
		`ALTER FUNCTION pushmesh.make_slice SECURITY INVOKER`, `ALTER ROLE ` + user(t, role) + ` CREATEROLE`, `SET ROLE ` + user(t, owner),
	} {
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), sql); !errors.As(err, &refused) || refused.Code[:2] != "42" && refused.Code != "22023" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// One that is attached is not dropped, and one may not be taken from anybody else's schema.
	name := ""
	need(t, conn.QueryRow(t.Context(), `SELECT c.relname FROM pg_class AS c WHERE c.relispartition AND c.relname ~ '^batch_[0-9]+$' LIMIT 1`).Scan(&name))
	if _, err := conn.Exec(t.Context(), `SELECT pushmesh.drop_slice($1)`, name); err == nil {
		t.Errorf("%s is dropped while it is attached", name)
	}
}

// A schema that is older than the store, or not there, is refused by a store whose role may not
// change it; what a later step brings is granted by whoever migrates.
func TestAnOldSchemaIsNotWorkedWith(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	both := Config{URL: role, OwnerURL: owner, Patience: backendtest.Patience}
	need(t, Migrate(t.Context(), both))
	conn, err := pgx.Connect(t.Context(), owner)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	db := stdlib.OpenDB(*conn.Config().Copy())
	defer func() { need(t, db.Close()) }()
	steps, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files, goose.WithTableName("pushmesh_migration"), goose.WithDisableGlobalRegistry(true))
	need(t, err)
	_, err = steps.Down(t.Context())
	need(t, err)
	if said := refusedOpen(t, role); !strings.Contains(said, "lacks 1 steps") || !strings.Contains(said, "store --migrate-only") {
		t.Errorf("of an old schema it says %q", said)
	}
	need(t, Migrate(t.Context(), both))
	need(t, open(t, role).MakeSlices(t.Context(), now()))
	// Who only looks changes nothing: grants that are there are not made again.
	var acl, again string
	const grants = `SELECT string_agg(xmin::text, ',' ORDER BY oid) FROM pg_class WHERE relnamespace = 'pushmesh'::regnamespace AND NOT relispartition`
	need(t, conn.QueryRow(t.Context(), grants).Scan(&acl))
	need(t, Migrate(t.Context(), both))
	if need(t, conn.QueryRow(t.Context(), grants).Scan(&again)); acl != again {
		t.Error("a second migration grants what was granted")
	}
	// The password of neither is told where a URL is wrong.
	both.OwnerURL = "postgres://u:secret@:x/y"
	both.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if err := Migrate(t.Context(), both); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("of a wrong URL it says %v", err)
	}
}

// A store starts on a schema with steps that it does not know, since they only add; not on one
// which says that a step took away what this store uses. It says so as whichever role it starts.
func TestALaterSchemaIsWorkedWithUnlessItSaysNo(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	need(t, Migrate(t.Context(), Config{URL: role, OwnerURL: owner, Patience: backendtest.Patience}))
	execute(t, owner, `INSERT INTO pushmesh_migration (version_id, is_applied) VALUES (99998, true), (99999, true)`,
		`ALTER TABLE pushmesh.session ADD COLUMN later int NOT NULL DEFAULT 1`)
	every := []Config{{URL: owner}, {URL: role}, {URL: role, OwnerURL: owner}}
	for i := range every {
		every[i].Patience = backendtest.Patience
		need(t, Migrate(t.Context(), every[i]))
	}
	execute(t, owner, `INSERT INTO pushmesh.oldest_store VALUES (30)`,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON pushmesh.oldest_store TO `+user(t, role))
	for _, c := range every {
		need(t, Migrate(t.Context(), c))
	}
	execute(t, owner, `UPDATE pushmesh.oldest_store SET step = 99998`)
	for _, c := range every {
		if err := Migrate(t.Context(), c); err == nil || !strings.Contains(err.Error(), "later version, whose stores know step 99998") {
			t.Errorf("a store that knows less starts: %v", err)
		}
	}
	// A role that was granted nothing yet is refused by the same words once it is.
	execute(t, owner, `REVOKE ALL ON pushmesh.oldest_store FROM `+user(t, role))
	if err := Migrate(t.Context(), every[2]); err == nil || !strings.Contains(err.Error(), "later version") {
		t.Errorf("a store that knows less starts: %v", err)
	}
}

// A schema that its owner brought up to date alone, as if stores had its role, is refused by a
// store whose role was not granted what is new there: its first use would be.
func TestARoleThatLacksGrantsIsRefused(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	both := Config{URL: role, OwnerURL: owner, Patience: backendtest.Patience}
	need(t, Migrate(t.Context(), both))
	execute(t, owner, `REVOKE ALL ON pushmesh.namespace FROM `+user(t, role))
	need(t, Migrate(t.Context(), Config{URL: owner, Patience: backendtest.Patience}))
	if said := refusedOpen(t, role); !strings.Contains(said, "lacks 1 grants") || !strings.Contains(said, "GRANT SELECT, INSERT, UPDATE, DELETE ON pushmesh.namespace TO") ||
		!strings.Contains(said, "PUSHMESH_DB_OWNER") {
		t.Errorf("of grants that lack it says %q", said)
	}
	need(t, Migrate(t.Context(), both))
	open(t, role)
}

// A partition that an owner's store began to take out, and did not end, is taken out by one whose
// role does not own it.
func TestARoleWithoutDDLEndsWhatAnOwnerBegan(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	d := openWith(t, Config{URL: role, OwnerURL: owner, Patience: backendtest.Patience})
	need(t, d.MakeSlices(t.Context(), now()))
	reader, err := pgx.Connect(t.Context(), owner)
	need(t, err)
	defer func() { need(t, reader.Close(t.Context())) }()
	tx, err := reader.Begin(t.Context())
	need(t, err)
	var n int
	need(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pushmesh.batch`).Scan(&n))
	beginner := open(t, owner)
	future := now() + uint64((365 * 24 * time.Hour).Microseconds())
	if _, err := beginner.DropSlices(t.Context(), future); err != nil {
		t.Fatal(err)
	}
	if _, leaving := countSlices(t, owner); leaving == 0 {
		t.Fatal("nothing is on its way out")
	}
	if _, err := d.DropSlices(t.Context(), future); err != nil {
		t.Errorf("beside a reader: %v", err)
	}
	need(t, tx.Rollback(t.Context()))
	if _, err := d.DropSlices(t.Context(), future); err != nil {
		t.Error(err)
	}
	if all, leaving := countSlices(t, owner); leaving != 0 {
		t.Errorf("%d slices, %d on their way out", all, leaving)
	}
}

// A store whose role does not own the log leaves old slices while somebody reads it for long, and
// no append waits for that; they go once the reader has ended.
func TestALongReaderDelaysNoAppendOfARoleWithoutDDL(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t, "log_lock_waits=on", "deadlock_timeout=1ms", "log_line_prefix=<%a> ")
	owner := server.URL()
	role, err := pgserver.Role(server.Superuser(), "plain")
	need(t, err)
	d := openWith(t, Config{URL: role.String(), OwnerURL: owner, Patience: backendtest.Patience})
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	old := batch(3, h.epoch[3], 1)
	old.Runs[0].At = now() - uint64((3 * 24 * time.Hour).Microseconds())
	need(t, w.Commit(t.Context(), old))
	need(t, d.MakeSlices(t.Context(), now()))
	reader, err := pgx.Connect(t.Context(), owner)
	need(t, err)
	defer func() { need(t, reader.Close(t.Context())) }()
	tx, err := reader.Begin(t.Context())
	need(t, err)
	var n int
	need(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM pushmesh.log`).Scan(&n))
	stop, appended := make(chan struct{}), make(chan uint64)
	go func() { appended <- appendUntil(t, stop, w, h.epoch[3]) }()
	before, _ := countSlices(t, owner)
	for range 3 {
		if n, err := d.DropSlices(t.Context(), now()); err != nil || n != 0 {
			t.Errorf("beside a reader %d slices are dropped: %v", n, err)
		}
	}
	close(stop)
	<-appended
	if waits := lockWaits(t, server, "pushmesh-writer"); waits != "" {
		t.Errorf("appends waited for locks:\n%s", waits)
	}
	if after, leaving := countSlices(t, owner); after != before || leaving != 0 {
		t.Errorf("%d slices became %d and %d on their way out", before, after, leaving)
	}
	need(t, tx.Rollback(t.Context()))
	for deadline := time.Now().Add(backendtest.Patience); ; {
		n, err := d.DropSlices(t.Context(), now())
		need(t, err)
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the old slice stays")
		}
	}
}
