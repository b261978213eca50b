package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/process"
)

// RestartAfter is how long a process stays dead with Settings.Restart: long enough that its peers
// notice.
const RestartAfter = time.Second

// Mesh is a mesh of processes. It is a lifecycle.Part and owns the processes, the private Postgres
// and the goroutines that watch them.
type Mesh struct {
	set      Settings
	out      io.Writer
	mesh     *process.Mesh
	watchers *lifecycle.Group
	saving   sync.Mutex // guards the state file

	postgres *pgserver.Server // nil: Settings.Postgres
	pgDir    string
	database string // URL
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
	for _, p := range m.mesh.All() {
		if err := p.Start(); err != nil {
			return err
		}
		m.watchers.Go("watch "+p.Name, func(ctx context.Context) { m.watch(ctx, p) })
	}
	if err := m.mesh.Ready(ctx); err != nil {
		return err
	}
	return m.save()
}

// How many of the tiers that scale out.
const (
	edges   = 2
	routers = 2
)

// layout decides every process's address and arguments.
func (m *Mesh) layout() (err error) {
	m.mesh, err = process.New(process.Options{
		NATSServers: m.set.NATSServers, Stores: 1, Computes: 1, Routers: routers, Edges: edges,
		Binary: m.set.binary, Logs: m.set.Dir, DBs: []string{m.database}, FixedPorts: !m.set.FreePorts,
		Args: map[string][]string{
			"store":   {"--log-level", m.set.LogLevel},
			"compute": {"--log-level", m.set.LogLevel},
			"router": {
				"--producer-rate", strconv.Itoa(m.set.ProducerRate), "--producer-in-flight", strconv.Itoa(m.set.ProducerInFlight),
				"--append-wait", "1s", "--open", "--log-level", m.set.LogLevel,
			},
			"edge": {"--open", "--log-level", m.set.LogLevel},
		},
	})
	return err
}

func (m *Mesh) startPostgres() error {
	m.database = m.set.Postgres
	if m.set.Postgres != "" {
		return nil
	}
	dir, err := pgserver.TempDir("")
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	m.pgDir = dir
	if m.postgres, err = pgserver.Start(dir, 0); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	m.database = m.postgres.URL()
	return nil
}

// watch tells of a process's end, and starts it again where that was asked for.
func (m *Mesh) watch(ctx context.Context, p *process.Process) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
		}
		fmt.Fprintf(m.out, "%s ended: %v; see %s\n", p.Name, p.End(), p.Log)
		if !m.set.Restart {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(RestartAfter):
		}
		if err := errors.Join(p.Start(), m.save()); err != nil {
			fmt.Fprintln(m.out, err)
			return
		}
		fmt.Fprintf(m.out, "%s started again, pid %d\n", p.Name, p.PID())
	}
}

// State is what runs.
func (m *Mesh) State() State {
	s := State{
		Pid: os.Getpid(), NATS: m.mesh.NATSURL, Postgres: m.database, Stores: m.mesh.StoreAddrs, Computes: process.Addrs(m.mesh.Computes),
		Routers: process.Addrs(m.mesh.Routers), Edges: process.Addrs(m.mesh.Edges),
	}
	for _, p := range m.mesh.All() {
		s.Processes = append(s.Processes, ProcessState{Name: p.Name, Pid: p.PID(), Addr: p.Addr, HTTP: p.HTTP, Log: p.Log, Path: p.Path, Args: p.Args, Env: p.Env})
	}
	return s
}

func (m *Mesh) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	return m.State().write(m.set.Dir)
}

// Stop stops everything in reverse order, each within the grace period, then Postgres.
func (m *Mesh) Stop(ctx context.Context) error {
	errs := []error{m.watchers.Stop(ctx)}
	if m.mesh != nil {
		errs = append(errs, m.mesh.Stop(m.set.Grace))
	}
	if m.postgres != nil {
		errs = append(errs, m.postgres.Stop())
	}
	if m.pgDir != "" {
		errs = append(errs, os.RemoveAll(m.pgDir))
	}
	return errors.Join(errs...)
}
