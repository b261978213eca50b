package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// ErrPooled says that a session of the store's is not one of the server's.
var ErrPooled = errors.New("postgres: a pooler in transaction mode is between store and server, and no lock would be the store's: " +
	"connect directly, or through a pooler in session mode (PgBouncer: pool_mode=session)")

// poolerRounds is how often a connection is asked for its backend, with another one at work and
// without. A pooler that gives backends away in turn may by chance give the same one again.
const poolerRounds = 4

// between connects to find out whether a pooler is between, and refuses one in transaction mode.
// Nothing is set on the way: through such a pooler it would be set for others.
func (s *Server) between(ctx context.Context) error {
	cfg := s.fresh()
	takeSettings(cfg)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	kind, err := s.pooler(ctx, conn.PgConn())
	if err != nil {
		return err
	}
	if kind == meshv1.InspectedDatabase_POOLER_TRANSACTION {
		return ErrPooled
	}
	s.pooled = kind == meshv1.InspectedDatabase_POOLER_SESSION
	return nil
}

// pooler finds out what is between conn and the server, with another connection for a moment: a
// pooler that gives backends away between transactions gives the one that was used last, or the
// next, to whoever comes. A backend that is another one, or another connection's as well, is proof;
// nothing here depends on what the pooler is called.
func (s *Server) pooler(ctx context.Context, conn *pgconn.PgConn) (meshv1.InspectedDatabase_Pooler, error) {
	cfg := s.fresh()
	takeSettings(cfg)
	busy, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("postgres: connect: %w", err)
	}
	defer func() { _ = busy.Close(ctx) }()
	first, err := backendOf(ctx, conn)
	if err != nil {
		return 0, err
	}
	rounds := poolerRounds
	if first == conn.PID() {
		rounds = 1 // nobody answers for the server
	}
	for range rounds {
		other, err := backendOf(ctx, busy.PgConn(), `BEGIN`)
		if other == first || SQLState(err) == "08P01" {
			// protocol_violation: a pooler that knows no transactions
			return meshv1.InspectedDatabase_POOLER_TRANSACTION, nil
		}
		if err != nil {
			return 0, err
		}
		beside, err := backendOf(ctx, conn)
		if err != nil {
			return 0, err
		}
		if _, err := busy.Exec(ctx, `ROLLBACK`, pgx.QueryExecModeSimpleProtocol); err != nil {
			return 0, err
		}
		after, err := backendOf(ctx, conn)
		if err != nil {
			return 0, err
		}
		again, err := backendOf(ctx, conn) // two backends in turn: the other one's turn
		if err != nil {
			return 0, err
		}
		if beside != first || after != first || again != first {
			return meshv1.InspectedDatabase_POOLER_TRANSACTION, nil
		}
	}
	if first != conn.PID() {
		return meshv1.InspectedDatabase_POOLER_SESSION, nil
	}
	return meshv1.InspectedDatabase_POOLER_NONE, nil
}

// backendOf asks which of the server's processes works for a connection, after other statements.
// Prepared statements might be another backend's.
func backendOf(ctx context.Context, conn *pgconn.PgConn, before ...string) (uint32, error) {
	all, err := conn.Exec(ctx, strings.Join(append(before, `SELECT pg_backend_pid()`), "; ")).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("postgres: which backend: %w", err)
	}
	pid, err := strconv.ParseUint(string(all[len(all)-1].Rows[0][0]), 10, 32)
	return uint32(pid), err
}

// steady fails where a session's statements go to several backends. Who answers with the number
// that the connection was given at its start is the server.
func (s *Server) steady(ctx context.Context, conn *pgx.Conn, pid int32) error {
	if conn.PgConn().PID() == uint32(pid) {
		return nil
	}
	kind, err := s.pooler(ctx, conn.PgConn())
	if err == nil && kind == meshv1.InspectedDatabase_POOLER_TRANSACTION {
		err = ErrPooled
	}
	return err
}

// passed are the parameters that poolers take at the start of a connection. What else a session is
// set to, they refuse or ignore.
var passed = []string{"application_name", "client_encoding", "datestyle", "options", "standard_conforming_strings", "timezone"}

// takeSettings takes out of cfg what a session is set to at its start, but for what poolers take,
// and returns it.
func takeSettings(cfg *pgx.ConnConfig) map[string]string {
	others := map[string]string{}
	for name, value := range cfg.RuntimeParams {
		if !slices.Contains(passed, strings.ToLower(name)) {
			others[name] = value
		}
	}
	for name := range others {
		delete(cfg.RuntimeParams, name)
	}
	return others
}

// forget removes the records of whom the session's backend served before: what died behind a pooler
// would look alive by the work of whoever has been given its backend. Where the schema is not there
// yet, or nothing may be written, there is nothing to be forgotten; a row that is locked is
// somebody's who removes it.
const forget = `DO $$ BEGIN
	DELETE FROM pushmesh.writer WHERE pid = pg_backend_pid();
	DELETE FROM pushmesh.claim_run WHERE id IN (SELECT id FROM pushmesh.claim_run WHERE pid = pg_backend_pid() FOR UPDATE SKIP LOCKED);
	EXCEPTION WHEN undefined_table OR invalid_schema_name OR insufficient_privilege OR read_only_sql_transaction OR lock_not_available THEN NULL;
END $$`

// session has connections of cfg set by statements, behind a pooler, what they set at their start
// otherwise, and begins them as nobody's.
func (s *Server) session(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	if !s.pooled {
		return cfg
	}
	others, after := takeSettings(cfg), cfg.AfterConnect
	var set []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		set = append(set, fmt.Sprintf("SET %s = %s", pgx.Identifier{name}.Sanitize(), quoted(others[name])))
	}
	begin := strings.Join(append(set, forget), "; ")
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, begin).ReadAll()
		return err
	}
	return cfg
}

// quoted is the literal of a setting's value.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
