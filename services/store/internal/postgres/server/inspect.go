package server

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/dbgate"
)

// Home is the name of a mesh's first database.
const Home = "home"

// inspected are the settings that an installation is judged by. What a server does not know is left
// out.
var inspected = []string{
	"server_version", "synchronous_commit", "fsync", "full_page_writes", "wal_level", "max_connections", "superuser_reserved_connections",
	"min_wal_size", "max_wal_size", "wal_recycle", "autovacuum", "track_commit_timestamp", "synchronous_standby_names", "shared_buffers",
	"max_locks_per_transaction", "statement_timeout",
}

// Inspect asks the server what it is set to.
func (s *Server) Inspect(ctx context.Context) []*meshv1.InspectedDatabase {
	found := &meshv1.InspectedDatabase{Name: Home, Kind: "postgres", NoFsyncAllowed: s.Config.AllowNoFsync, StoreConnections: uint32(s.Config.Pool.Max + s.writing())}
	err := s.As(ctx, dbgate.Small, func(ctx context.Context, conn *pgxpool.Conn) error { return s.inspect(ctx, conn, found) })
	if err != nil {
		found = &meshv1.InspectedDatabase{Name: Home, Kind: "postgres", Problem: err.Error()}
	}
	return []*meshv1.InspectedDatabase{found}
}

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
	found.Pooler, err = s.pooler(ctx, conn.Conn().PgConn())
	return err
}
