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
// was asked. What commits of conn wait for is fixed with it: it stays when the server's setting
// changes.
func (s *Server) sound(ctx context.Context, conn *pgx.Conn) (process, error) {
	var (
		p           process
		start       *time.Time
		user, login string
		ends        bool
		version     int
		set         durability
		standby     bool
	)
	err := conn.QueryRow(ctx, `
		SELECT pg_backend_pid(), a.backend_start, current_user, session_user, `+MayFence+`, current_setting('server_version_num')::int,
		       set_config('synchronous_commit', current_setting('synchronous_commit'), false), current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery()
		FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid WHERE a.pid = pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).
		Scan(&p.pid, &start, &user, &login, &ends, &version, &set.commit, &set.fsync, &set.pages, &standby)
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
	if err := s.durable(set); err != nil {
		errs = append(errs, err)
	}
	if standby {
		errs = append(errs, errors.New("postgres: the server is a standby: it can't be written to"))
	}
	return p, errors.Join(errs...)
}

// durability is what a server is set to that decides whether what it has committed can be lost.
type durability struct{ commit, fsync, pages string }

// durable finds every reason to lose what is committed.
func (s *Server) durable(set durability) error {
	var errs []error
	if set.commit != "on" && set.commit != "remote_apply" {
		errs = append(errs, fmt.Errorf("postgres: synchronous_commit is %q: what is acknowledged could be lost; set it to on", set.commit))
	}
	if set.fsync != "on" && !s.Config.AllowNoFsync {
		errs = append(errs, fmt.Errorf("postgres: fsync is %q: what is acknowledged could be lost; set it to on, or allow it", set.fsync))
	}
	if set.pages != "on" && !s.Config.AllowNoFsync {
		errs = append(errs, fmt.Errorf("postgres: full_page_writes is %q: a crash in the middle of a write could lose what is acknowledged; set it to on, or allow it", set.pages))
	}
	return errors.Join(errs...)
}

// Settings queues what WatchSettings looks at, on a connection that has what the server is set to
// now.
func (s *Server) Settings(b *pgx.Batch) (found *Settings) {
	found = &Settings{}
	b.Queue(`SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'), ` + synchronous + `,
		s.synchronous IS DISTINCT FROM (` + synchronous + `), t.system = s.system AND t.timeline = s.timeline FROM pushmesh.server AS s, pushmesh.this_server() AS t`).QueryRow(func(row pgx.Row) error {
		return row.Scan(&found.set.commit, &found.set.fsync, &found.set.pages, &found.synchronous, &found.changed, &found.known)
	})
	return found
}

// Settings of a server that may change while stores run.
type Settings struct {
	set                         durability
	synchronous, changed, known bool
}

// WatchSettings stops appends while what they commit could be lost, and keeps whether commits wait
// for a standby.
func (s *Server) WatchSettings(ctx context.Context, found *Settings, on Querier) {
	err := s.durable(found.set)
	before := s.unsound.Load()
	switch {
	case err != nil && (before == nil || (*before).Error() != err.Error()):
		s.unsound.Store(&err)
		s.Config.Log.Error("nothing is appended: what is acknowledged could be lost", "error", err)
	case err == nil && before != nil:
		s.unsound.Store(nil)
		s.Config.Log.Info("appends go on: the server keeps what is acknowledged")
	}
	if !found.known { // what it was on the server before is still to be judged
		return
	}
	s.asynchronous.Store(!found.synchronous)
	if !found.changed {
		return
	}
	if err := s.NoteSynchronous(ctx, on); err != nil {
		s.Config.Log.Debug("whether commits wait for a standby could not be noted", "error", err)
	}
}
