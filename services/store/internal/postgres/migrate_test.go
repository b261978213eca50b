package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// schema is everything that lies in the schema pushmesh: relations with their columns, functions,
// indexes, constraints.
func schema(t *testing.T, conn *pgx.Conn) (all []string) {
	rows, err := conn.Query(t.Context(), `
		SELECT 'column ' || c.relname || ' ' || c.relkind::text || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
		FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = to_regnamespace('pushmesh')
		UNION ALL SELECT 'function ' || p.oid::regprocedure || md5(p.prosrc) FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace('pushmesh')
		UNION ALL SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = to_regnamespace('pushmesh')`)
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	need(t, err)
	slices.Sort(all)
	return all
}

// Every migration can be taken back, which leaves what was there before, and made again, with what
// was there after.
func TestMigrationsUpAndDown(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	db := stdlib.OpenDB(*conn.Config().Copy())
	defer func() { need(t, db.Close()) }()
	steps, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files, goose.WithTableName("pushmesh_migration"), goose.WithDisableGlobalRegistry(true))
	need(t, err)
	before := schema(t, conn)
	if len(before) > 0 {
		t.Fatalf("the database is not empty: %v", before)
	}
	for range steps.ListSources() {
		_, err := steps.UpByOne(t.Context())
		need(t, err)
		after := schema(t, conn)
		step, err := steps.Down(t.Context())
		need(t, err)
		if got := schema(t, conn); !slices.Equal(got, before) {
			t.Fatalf("%s taken back leaves\n%v, not\n%v", step.Source.Path, got, before)
		}
		_, err = steps.UpByOne(t.Context())
		need(t, err)
		if got := schema(t, conn); !slices.Equal(got, after) {
			t.Fatalf("%s made again makes\n%v, not\n%v", step.Source.Path, got, after)
		}
		before = after
	}
}

// At the second start the current schema is another one where the role is called pushmesh, whose
// schema the first start made: the steps are found where they were noted, and none is made again.
// So are those of a database in which such a start failed.
func TestASecondStartFindsTheSteps(t *testing.T) {
	t.Parallel()
	owner := pgtest.URL(t)
	role := pgtest.Another(t, owner)
	path := func(url string) string {
		if strings.Contains(url, "?") {
			return url + "&search_path=pushmesh,public"
		}
		return url + "?search_path=pushmesh,public"
	}
	for _, both := range []Config{{URL: role, OwnerURL: path(owner)}, {URL: path(role), OwnerURL: path(owner)}, {URL: role, OwnerURL: owner}} {
		both.Patience = backendtest.Patience
		for range 2 {
			need(t, Migrate(t.Context(), both))
		}
		open(t, both.URL)
	}
	conn, err := pgx.Connect(t.Context(), owner)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), `CREATE TABLE pushmesh.pushmesh_migration (LIKE public.pushmesh_migration INCLUDING ALL);
		INSERT INTO pushmesh.pushmesh_migration (id, version_id, is_applied) VALUES (1, 0, true)`)
	need(t, err)
	need(t, Migrate(t.Context(), Config{URL: path(role), OwnerURL: path(owner), Patience: backendtest.Patience}))
	open(t, path(role))
}

// A step that waits for a lock behind a long transaction holds up whoever comes behind it for a
// moment only, and is made once the transaction has ended.
func TestAMigrationStallsNobody(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	need(t, open(t, url).Close())
	const table = "pushmesh.mark" // of which the step needs a lock that excludes everybody
	execute(t, url, `ALTER TABLE `+table+` REPLICA IDENTITY DEFAULT`, `DELETE FROM pushmesh_migration WHERE version_id >= 39`)
	long := connected(t, url)
	tx, err := long.Begin(t.Context())
	need(t, err)
	if _, err := tx.Exec(t.Context(), `LOCK TABLE `+table+` IN ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		d, err := Open(t.Context(), Config{URL: url, Patience: backendtest.Patience})
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	writes := connected(t, url)
	waiting := func() (n int) {
		need(t, writes.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE relation = '`+table+`'::regclass AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
		return n
	}
	for range 2 { // tries of the step
		for waiting() == 0 { // the test's own time bounds it
			if t.Context().Err() != nil {
				t.Fatal("the step does not wait for its lock")
			}
		}
		if _, err := writes.Exec(t.Context(), `DELETE FROM `+table+` WHERE shard = 0`); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-opened:
			t.Fatalf("it is up to date beside a transaction that excludes it: %v", err)
		default:
		}
	}
	need(t, tx.Rollback(t.Context()))
	need(t, <-opened)
	var identity string
	need(t, writes.QueryRow(t.Context(), `SELECT relreplident::text FROM pg_class WHERE oid = '`+table+`'::regclass`).Scan(&identity))
	if identity != "f" {
		t.Errorf("the step was not made: identity %q", identity)
	}
}
