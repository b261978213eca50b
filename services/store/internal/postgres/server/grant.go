package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"

	"github.com/pushmesh/pushmesh/services/store/migrations"
)

// upToDate migrates as the owner, and grants; or migrates as the store's own role, if that may; or
// else finds the schema as this version needs it.
func (s *Server) upToDate(ctx context.Context) error {
	if s.Config.OwnerURL == "" {
		have, err := s.schema(ctx)
		if err != nil {
			return err
		}
		if s.owns = have.may; !have.may {
			return have.check()
		}
		return migrate(ctx, s.migrating(s.fresh()), s.Config.Log)
	}
	pool, err := pgxpool.ParseConfig(s.Config.OwnerURL)
	if err != nil {
		// what err says may hold a password
		return errors.New("postgres: the owner's URL is no URL of a database")
	}
	owner := pool.ConnConfig
	if s.Config.Dial != nil {
		owner.DialFunc = s.Config.Dial
	}
	if err := migrate(ctx, s.migrating(owner.Copy()), s.Config.Log); err != nil {
		return err
	}
	have, err := s.schema(ctx)
	if err != nil {
		return err
	}
	if s.owns = have.may; have.may {
		return nil
	}
	if err := grant(ctx, s.session(owner), have.role); err != nil {
		return err
	}
	if have, err = s.schema(ctx); err != nil {
		return err
	}
	return have.check()
}

// schema is what a role finds in a database.
type schema struct {
	role    string
	may     bool // change the schema, or make it
	missing []int64
	lacks   []string // grants, of a role that may not change a schema which has all steps
}

// check refuses a schema that is older than this version, or in which the role was not granted what
// a store needs.
func (h *schema) check() error {
	switch {
	case len(h.lacks) > 0:
		return fmt.Errorf("postgres: role %q lacks %d grants that a store needs (the first is %s): "+
			"run store --migrate-only once, with --db of this role, and --db-owner or PUSHMESH_DB_OWNER of the role that owns the schema", h.role, len(h.lacks), h.lacks[0])
	case len(h.missing) == 0:
		return nil
	}
	return fmt.Errorf("postgres: the database's schema lacks %d steps that this version needs (the first is %05d), and role %q may not change it: "+
		"run store --migrate-only once, of this version, with --db-owner or PUSHMESH_DB_OWNER of the role that owns it", len(h.missing), h.missing[0], h.role)
}

// schema asks as the store's own role.
func (s *Server) schema(ctx context.Context) (*schema, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.Config.Patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.session(s.fresh()))
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	h := &schema{}
	table, readable, err := findSteps(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := conn.QueryRow(ctx, `
		SELECT current_user, coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'pushmesh'), has_database_privilege(current_database(), 'CREATE'))`).Scan(&h.role, &h.may); err != nil {
		return nil, fmt.Errorf("postgres: look at the schema: %w", err)
	}
	var done []int64
	if readable {
		rows, err := conn.Query(ctx, "SELECT version_id FROM "+table+" WHERE is_applied")
		if err == nil {
			done, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil {
			return nil, fmt.Errorf("postgres: look at the schema: %w", err)
		}
	}
	all, err := wanted()
	if err != nil {
		return nil, err
	}
	if err := newEnough(ctx, conn, all); err != nil {
		return nil, fmt.Errorf("postgres: look at the schema: %w", err)
	}
	h.missing = slices.DeleteFunc(all, func(v int64) bool { return slices.Contains(done, v) })
	if len(h.missing) > 0 || h.may {
		return h, nil
	}
	rows, err := conn.Query(ctx, grants, h.role, table)
	if err == nil {
		h.lacks, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: look at grants: %w", err)
	}
	return h, nil
}

// wanted is the numbers of all steps.
func wanted() (all []int64, err error) {
	files, err := migrations.Files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	for _, f := range files {
		v, err := goose.NumericComponent(f.Name())
		if err != nil {
			return nil, fmt.Errorf("postgres: migrations: %w", err)
		}
		all = append(all, v)
	}
	return all, nil
}

// grantLock keeps stores that start together from granting together.
const grantLock = migrationLock + 1

// grants is what a role lacks of what a store needs, as statements. What is granted on a table
// holds for rows of its partitions.
const grants = `
	WITH r AS (SELECT oid, quote_ident(rolname) AS name FROM pg_roles WHERE rolname = $1)
	SELECT format('GRANT USAGE ON SCHEMA pushmesh TO %s', r.name) FROM r WHERE NOT has_schema_privilege(r.oid, 'pushmesh', 'USAGE')
	UNION ALL SELECT format('GRANT SELECT ON %s TO %s', to_regclass($2), r.name) FROM r
		WHERE NOT has_table_privilege(r.oid, to_regclass($2), 'SELECT')
	UNION ALL SELECT format('GRANT SELECT, INSERT, UPDATE, DELETE%s ON %s TO %s', t.truncate, c.oid::regclass, r.name)
		FROM r, pg_class AS c, LATERAL (SELECT CASE WHEN c.relname ~ '^outbox_(tick_)?[0-9]+$' THEN ', TRUNCATE' ELSE '' END AS truncate) AS t
		WHERE c.relnamespace = 'pushmesh'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
			AND c.relname !~ '^(log_[a-z]+|key_[a-z]+|batch|scheduled|cursor_page|checkpoint)_[0-9]+$'
			AND NOT (has_table_privilege(r.oid, c.oid, 'SELECT') AND has_table_privilege(r.oid, c.oid, 'INSERT') AND has_table_privilege(r.oid, c.oid, 'UPDATE')
				AND has_table_privilege(r.oid, c.oid, 'DELETE') AND (t.truncate = '' OR has_table_privilege(r.oid, c.oid, 'TRUNCATE')))
	UNION ALL SELECT format('GRANT USAGE, SELECT ON SEQUENCE %s TO %s', c.oid::regclass, r.name) FROM r, pg_class AS c
		WHERE c.relnamespace = 'pushmesh'::regnamespace AND c.relkind = 'S'
			AND NOT (has_sequence_privilege(r.oid, c.oid, 'USAGE') AND has_sequence_privilege(r.oid, c.oid, 'SELECT'))
	UNION ALL SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', p.oid::regprocedure, r.name) FROM r, pg_proc AS p
		WHERE p.pronamespace = 'pushmesh'::regnamespace AND NOT has_function_privilege(r.oid, p.oid, 'EXECUTE')`

// grant gives a role what a store needs, all of it at once.
func grant(ctx context.Context, owner *pgx.ConnConfig, role string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, BulkTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, owner)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	table, _, err := findSteps(ctx, conn)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(grantLock)); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, grants, role, table)
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(all) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, strings.Join(all, ";\n"), pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: grant role %q what a store needs: %w", role, err)
	}
	return nil
}
