// Package pgserver starts private Postgres servers, which their owner may kill, pause and restart.
// It is for tests, benchmarks and `pushmesh mesh`, and does not know of testing; pgtest does.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/ports"
)

// ReadyWithin bounds a start, crash recovery included, and an end.
const ReadyWithin = 3 * time.Minute

// Server is one private Postgres on 127.0.0.1, with fsync on. It is safe for concurrent use; it
// owns the process and whatever lies in its folder.
type Server struct {
	dir  string
	port int
	bin  string
	as   *Account
	with []string // settings, name=value
	// lifeline of a shared server: held so that it is not collected, which would close it.
	lifeline io.Closer

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed once the process of cmd has ended
}

// Start makes a cluster in dir where there is none and starts it on port (0: a free one). As root
// it runs as user postgres, who must be able to reach dir (TempDir makes such a folder). Settings
// are name=value and outdo those that tests get.
func Start(dir string, port int, settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := Unprivileged()
	if err != nil {
		return nil, err
	}
	if port == 0 {
		if port, err = ports.Port(); err != nil {
			return nil, err
		}
	}
	s := &Server{dir: dir, port: port, bin: bin, as: as, with: settings}
	if err := s.initialize(); err != nil {
		return nil, err
	}
	return s, s.start()
}

// URL of the database "postgres", as the ordinary role that owns it.
func (s *Server) URL() string { return s.url(Owner) }

// Superuser is URL for who may do everything.
func (s *Server) Superuser() string { return s.url("postgres") }

// Database is the URL of a database, as the ordinary role.
func (s *Server) Database(name string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", Owner, s.port, name)
}

// Dir is the folder of the server's files.
func (s *Server) Dir() string { return s.dir }

// Own gives a file to the account that the server runs as.
func (s *Server) Own(path string) error { return s.as.Own(path) }

func (s *Server) url(role string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", role, s.port)
}

// Log is what the server has logged so far.
func (s *Server) Log() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text), err
}

// Stop shuts down as an operator would (sessions are ended, a checkpoint is made).
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(func() error { return s.cmd.Process.Signal(syscall.SIGINT) })
}

// Kill ends every process of the server with SIGKILL, as a crash of the machine would, and returns
// when all are gone: while one still holds the shared memory, the server does not start again.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var children []int
	err := s.stop(func() error {
		// Stopped first, the postmaster starts no further process.
		stopped := s.signal(syscall.SIGSTOP)
		var listed error
		children, listed = childrenOf(s.pid())
		return errors.Join(stopped, listed, s.signal(syscall.SIGKILL))
	})
	return errors.Join(err, gone(children))
}

// Restart starts the server again on the same port and data; one that runs is stopped first.
func (s *Server) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.start()
}

// Promote starts the server again as a standby of nobody and promotes it: it has everything, on
// another timeline.
func (s *Server) Promote() error {
	if err := s.Stop(); err != nil {
		return err
	}
	signal := filepath.Join(s.dir, "data", "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	if err := errors.Join(s.as.Own(signal), s.start()); err != nil {
		return err
	}
	return Exec(s.Superuser(), "SELECT pg_promote()")
}

// Pause makes the server hang (SIGSTOP to each of its processes): connections stay, nothing
// answers.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal(syscall.SIGCONT)
}

func (s *Server) pid() int { return s.cmd.Process.Pid }

func (s *Server) initialize() error {
	data := filepath.Join(s.dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := s.as.Own(s.dir); err != nil {
		return err
	}
	// #nosec G204 -- all of it is ours
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
	s.as.Run(cmd, s.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// #nosec G304 -- the caller's folder
	logFile, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	args := []string{
		"-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port), "-h", "127.0.0.1", "-k", s.socketDir(),
		"-c", "max_connections=300", "-c", "shared_buffers=128MB",
		// In the data folder: a server that a test kills would leave it in /dev/shm.
		"-c", "dynamic_shared_memory_type=mmap",
	}
	for _, setting := range s.with {
		args = append(args, "-c", setting)
	}
	// #nosec G204 -- all of it is ours
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.as.Run(cmd, s.dir)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	done := make(chan struct{})
	s.cmd, s.done = cmd, done
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(done)
	}()
	return s.ready()
}

// ready waits until the server answers.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyWithin)
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.Superuser())
		if err == nil {
			return errors.Join(s.own(ctx, conn), conn.Close(ctx))
		}
		select {
		case <-poll.C:
		case <-s.done:
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("postgres ended at its start: %s", text[max(0, len(text)-2000):])
		case <-ctx.Done():
			return fmt.Errorf("postgres is not ready after %s: %w", ReadyWithin, err)
		}
	}
}

// Owner is the role that owns the database "postgres", and nothing else.
const Owner = "store"

func (s *Server) own(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `DO $$ BEGIN
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '`+Owner+`') THEN
			CREATE ROLE `+Owner+` LOGIN;
			ALTER DATABASE postgres OWNER TO `+Owner+`;
		END IF;
	END $$`)
	if err != nil {
		return fmt.Errorf("postgres: make the role %s: %w", Owner, err)
	}
	return nil
}

// stop has the process end by way of end and waits for it. s.mu is held.
func (s *Server) stop(end func() error) error {
	select {
	case <-s.done:
		return nil
	default:
	}
	if err := end(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(ReadyWithin):
		return errors.New("postgres does not end")
	}
}

// socketDir is the folder of the Unix socket; "" (none) where its path would be too long for the
// kernel.
func (s *Server) socketDir() string {
	if len(s.dir) > 80 {
		return ""
	}
	return s.dir
}
