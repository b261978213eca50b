package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// process is a Postgres backend; its start tells it from the next one with the same pid.
type process struct {
	pid   int32
	start time.Time
	// mark of the session that it serves, by which it is told from the pooler's next one in the
	// same backend; 0 without a pooler.
	mark uint32
}

// oldest version that has what we use: DETACH CONCURRENTLY, pg_terminate_backend with a timeout.
const oldestVersion = 140000

// sound finds every reason not to trust a server with what is acknowledged, and says which backend
// was asked.
func (s *Server) sound(ctx context.Context, conn *pgx.Conn) (process, error) {
	var (
		p             process
		start         *time.Time
		user, login   string
		ends          bool
		version       int
		commit, fsync string
		pages         string
		standby       bool
	)
	err := conn.QueryRow(ctx, `
		SELECT pg_backend_pid(), a.backend_start, current_user, session_user, `+MayFence+`, current_setting('server_version_num')::int, current_setting('synchronous_commit'),
		       current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery()
		FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid WHERE a.pid = pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).
		Scan(&p.pid, &start, &user, &login, &ends, &version, &commit, &fsync, &pages, &standby)
	if err != nil {
		return p, fmt.Errorf("postgres: check the server: %w", err)
	}
	if err := s.steady(ctx, conn, p.pid); err != nil {
		return p, err
	}
	var errs []error
	if start != nil {
		p.start = *start
	}
	if start == nil || !ends { // it acts as another role than it logged in as
		errs = append(errs, fmt.Errorf("postgres: no store could be fenced, nor what it left behind be ended: %s", Unfenceable(login, user, false)))
	}
	if version < oldestVersion {
		errs = append(errs, fmt.Errorf("postgres: version %d, at least %d is needed", version, oldestVersion))
	}
	if commit != "on" && commit != "remote_apply" {
		errs = append(errs, fmt.Errorf("postgres: synchronous_commit is %q: what is acknowledged could be lost; set it to on", commit))
	}
	if fsync != "on" && !s.Config.AllowNoFsync {
		errs = append(errs, fmt.Errorf("postgres: fsync is %q: what is acknowledged could be lost; set it to on, or allow it", fsync))
	}
	if pages != "on" && !s.Config.AllowNoFsync {
		errs = append(errs, fmt.Errorf("postgres: full_page_writes is %q: a crash in the middle of a write could lose what is acknowledged; set it to on, or allow it", pages))
	}
	if standby {
		errs = append(errs, errors.New("postgres: the server is a standby: it can't be written to"))
	}
	return p, errors.Join(errs...)
}
