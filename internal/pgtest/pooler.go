package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/ports"
)

// Pooler starts a PgBouncer in front of the database of a URL, with pool_mode mode and further
// settings (name=value), and returns the URL through it for the same role. It ends with the test.
func Pooler(t testing.TB, of, mode string, settings ...string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	as, err := pgserver.Unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	port, err := ports.Port()
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	password, _ := u.User.Password()
	users, config := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%s", u.Hostname(), u.Port()),
		"[pgbouncer]",
		"listen_addr=127.0.0.1", "listen_port=" + strconv.Itoa(port), "unix_socket_dir=",
		"auth_type=trust", "auth_file=" + users,
		"max_client_conn=1000", "default_pool_size=100", "pool_mode=" + mode,
	}, settings...)
	for path, text := range map[string]string{users: fmt.Sprintf("%q %q\n", u.User.Username(), password), config: strings.Join(lines, "\n") + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := as.Own(path); err != nil {
			t.Fatal(err)
		}
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd, err := pgbouncer(config)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	as.Run(cmd, dir)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("PgBouncer: %s", log.String())
		}
	})
	if err := answers(u.String()); err != nil {
		t.Fatal("PgBouncer does not answer: ", err)
	}
	return u.String()
}

// pgbouncer is Debian's, which lies where ordinary users don't look.
func pgbouncer(config string) (*exec.Cmd, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no PgBouncer for the test: run scripts/setup: %w", err)
	}
	return exec.Command(path, config), nil // #nosec G204 -- all of it is ours
}

// answers waits until a database can be reached.
func answers(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.ReadyWithin)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return err
		}
	}
}
