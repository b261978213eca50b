package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/pgserver"
)

// RestartAfter is how long a process stays dead with Settings.Restart: long enough that its peers
// notice.
const RestartAfter = time.Second

// Mesh is a mesh of processes. It is a lifecycle.Part and owns the processes, the private Postgres
// and the goroutines that watch them.
type Mesh struct {
	set       Settings
	out       io.Writer
	processes []*process
	watchers  *lifecycle.Group

	mu    sync.Mutex // guards state and its file
	state State

	postgres *pgserver.Server
	pgDir    string
}

// New makes a mesh that does not run yet; out is told what happens.
func New(s Settings, out io.Writer) (*Mesh, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return &Mesh{set: s.withDefaults(), out: out}, nil
}

// Start starts everything and returns once all are ready. What was started is stopped again if it
// fails.
func (m *Mesh) Start(ctx context.Context) error {
	m.watchers = lifecycle.NewGroup(context.WithoutCancel(ctx))
	if err := m.start(ctx); err != nil {
		return errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (m *Mesh) start(ctx context.Context) error {
	if err := os.MkdirAll(m.set.Dir, 0o755); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	if err := m.startPostgres(); err != nil {
		return err
	}
	if err := m.layout(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.set.Ready)
	defer cancel()
	for _, p := range m.processes {
		if err := p.start(m.set.Dir); err != nil {
			return err
		}
		m.watchers.Go("watch "+p.name, func(ctx context.Context) { m.watch(ctx, p) })
	}
	for _, p := range m.processes {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	return m.save()
}

func (m *Mesh) startPostgres() error {
	m.state = State{Pid: os.Getpid(), Postgres: m.set.Postgres}
	if m.set.Postgres != "" {
		return nil
	}
	dir, err := pgserver.TempDir()
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	m.pgDir = dir
	if m.postgres, err = pgserver.Start(dir, 0); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	m.state.Postgres = m.postgres.URL()
	return nil
}

// watch tells of a process's end, and starts it again where that was asked for.
func (m *Mesh) watch(ctx context.Context, p *process) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.ended():
		}
		p.mu.Lock()
		fmt.Fprintf(m.out, "%s ended: %v; see %s\n", p.name, p.end, p.log)
		p.mu.Unlock()
		if !m.set.Restart {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(RestartAfter):
		}
		if err := errors.Join(p.start(m.set.Dir), m.save()); err != nil {
			fmt.Fprintln(m.out, err)
			return
		}
		fmt.Fprintf(m.out, "%s started again, pid %d\n", p.name, p.pid())
	}
}

// State says what runs.
func (m *Mesh) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Processes = nil
	for _, p := range m.processes {
		s.Processes = append(s.Processes, p.state())
	}
	return s
}

func (m *Mesh) save() error { return m.State().write(m.set.Dir) }

// Stop stops everything in reverse order, each within the grace period, then Postgres.
func (m *Mesh) Stop(ctx context.Context) error {
	errs := []error{m.watchers.Stop(ctx)}
	for _, p := range slices.Backward(m.processes) {
		errs = append(errs, p.stop(m.set.Grace))
	}
	if m.postgres != nil {
		errs = append(errs, m.postgres.Stop())
	}
	if m.pgDir != "" {
		errs = append(errs, os.RemoveAll(m.pgDir))
	}
	return errors.Join(errs...)
}
