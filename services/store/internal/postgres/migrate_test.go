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
