package server

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Home is the name of a mesh's first database.
const Home = "home"

// inspected are the settings that an installation is judged by. What a server does not know is left
// out.
var inspected = []string{
	"server_version", "synchronous_commit", "fsync", "full_page_writes", "wal_level", "max_connections", "superuser_reserved_connections",
	"min_wal_size", "max_wal_size", "wal_recycle", "autovacuum", "track_commit_timestamp", "synchronous_standby_names", "shared_buffers",
	"max_locks_per_transaction", "max_prepared_transactions", "max_worker_processes", "max_wal_senders", "autovacuum_max_workers", "statement_timeout",
}

// Inspect asks the server what it is set to.
func (s *Server) Inspect(ctx context.Context) []*meshv1.InspectedDatabase {
	found := &meshv1.InspectedDatabase{Name: Home, Kind: "postgres", NoFsyncAllowed: s.Config.AllowNoFsync, StoreConnections: uint32(s.Config.Pool.Max + s.writing() + watching)}
	err := s.As(ctx, dbgate.Small, func(ctx context.Context, conn *pgxpool.Conn) error { return s.inspect(ctx, conn, found) })
	if err != nil {
		found = &meshv1.InspectedDatabase{Name: Home, Kind: "postgres", Problem: err.Error()}
	}
	return []*meshv1.InspectedDatabase{found}
}

// watching is the connection of who watches the other stores.
const watching = 1

// writing is how many connections there are beside the pool, of those who commit.
func (s *Server) writing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func (s *Server) inspect(ctx context.Context, conn *pgxpool.Conn, found *meshv1.InspectedDatabase) error {
	rows, err := conn.Query(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1)`, inspected)
	if err != nil {
		return err
	}
	found.Settings = map[string]string{}
	var name, value string
	for rows.Next() {
		if err := rows.Scan(&name, &value); err != nil {
			rows.Close()
			return err
		}
		found.Settings[name] = value
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var connections, oldest int64
	err = conn.QueryRow(ctx, `
		SELECT count(*), coalesce(extract(epoch FROM max(clock_timestamp() - xact_start))::bigint, 0)
		FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&connections, &oldest)
	if err != nil {
		return err
	}
	found.Connections, found.OldestTransactionS = uint32(connections), uint64(max(oldest, 0))
	if err := conn.QueryRow(ctx, `SELECT pg_has_role('pg_read_all_stats', 'USAGE')`).Scan(&found.SeesOthers); err != nil {
		return err
	}
	if err := s.CheckPromotion(); err != nil {
		found.Distrust = err.Error()
	}
	if err := inspectServer(ctx, conn, found); err != nil {
		return err
	}
	if err := s.inspectLocks(ctx, conn, found); err != nil {
		return err
	}
	found.Pooler, err = s.pooler(ctx, conn.Conn().PgConn())
	return err
}

// inspectServer says which server answers, and which one the log is written on.
func inspectServer(ctx context.Context, conn *pgxpool.Conn, found *meshv1.InspectedDatabase) error {
	var is, was int64
	found.Server, found.Accepted = &pushmeshv1.DatabaseServer{}, &pushmeshv1.DatabaseServer{}
	err := conn.QueryRow(ctx, `SELECT t.system, t.timeline, s.system, s.timeline FROM pushmesh.server AS s, pushmesh.this_server() AS t`).
		Scan(&is, &found.Server.Timeline, &was, &found.Accepted.Timeline)
	found.Server.System, found.Accepted.System = uint64(is), uint64(was)
	return err
}

// Locks of statements: those that read the log lock all of its partitions with their indexes,
// others no more than a backend has room for beside the table that all share.
const (
	folding    = 2 // connections that fold beside those that read the log
	otherLocks = 16
)

// readingLog counts what a statement that reads the log locks: a table for each retention with its
// partitions, and the indexes of all, which the planner looks at.
const readingLog = `WITH logs AS (SELECT oid FROM pg_class WHERE relnamespace = 'pushmesh'::regnamespace AND relkind IN ('r', 'p') AND relname ~ '^log_')
	SELECT count(*) + (SELECT count(*) FROM pg_index WHERE indrelid IN (SELECT oid FROM logs)) FROM logs`

// inspectLocks counts what stores and dumps lock at a time.
func (s *Server) inspectLocks(ctx context.Context, conn *pgxpool.Conn, found *meshv1.InspectedDatabase) error {
	var each uint32
	if err := conn.QueryRow(ctx, readingLog).Scan(&each); err != nil {
		return err
	}
	pool := s.Config.Pool
	found.StoreLocks = uint32(pool.Reads+s.writing()+folding)*each + uint32(pool.Max-pool.Reads)*otherLocks
	return conn.QueryRow(ctx, `SELECT count(*) FROM pg_class WHERE relnamespace = 'pushmesh'::regnamespace AND relkind IN ('r', 'p')`).Scan(&found.Tables)
}
