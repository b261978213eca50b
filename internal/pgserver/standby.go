package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/ports"
)

// StartStandby copies a server that runs into dir, by pg_basebackup, and starts the copy on a free
// port: it follows the server under a name, and no commit waits for it until AwaitStandby names it.
// Settings are name=value.
func StartStandby(of *Server, dir, name string, settings ...string) (*Server, error) {
	port, err := ports.Port()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, port: port, bin: of.bin, as: of.as, with: settings}
	if err := errors.Join(os.MkdirAll(dir, 0o700), s.as.Own(dir)); err != nil {
		return nil, err
	}
	// #nosec G204 -- all of it is ours
	cmd := exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "--checkpoint=fast",
		"-d", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s sslmode=disable", of.port, name))
	s.as.Run(cmd, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return s, s.start()
}

// AwaitStandby has commits of the server wait until the standby of that name has them on its disk,
// and returns once they do; "": they wait for none.
func (s *Server) AwaitStandby(name string) error {
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = " + literal(name), "SELECT pg_reload_conf()"} {
		if err := Exec(s.Superuser(), sql); err != nil {
			return err
		}
	}
	return s.follows(name)
}

// follows waits until the standby of that name follows, and commits wait for it; "": until they
// wait for none.
func (s *Server) follows(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.Superuser())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		var is bool
		err := conn.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names') = $1 AND ($1 = '' OR EXISTS (
			SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming' AND sync_state = 'sync'))`, name).Scan(&is)
		if err != nil || is {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("postgres: no standby %q that commits wait for after %s", name, ReadyWithin)
		}
	}
}

// TakeOver promotes a standby that runs, and returns once it takes writes.
func (s *Server) TakeOver() error { return Exec(s.Superuser(), "SELECT pg_promote(true, 180)") }

// Whichever is the URL of whichever of servers takes writes, as the ordinary role.
func Whichever(servers ...*Server) string {
	u := url.URL{Scheme: "postgres", User: url.User(Owner), Path: "/postgres", RawQuery: "sslmode=disable&target_session_attrs=read-write"}
	for i, s := range servers {
		if i > 0 {
			u.Host += ","
		}
		u.Host += fmt.Sprintf("127.0.0.1:%d", s.port)
	}
	return u.String()
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
