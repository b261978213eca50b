package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/internal/process"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
	"github.com/pushmesh/pushmesh/test/siege/attack"
)

// mesh of processes: one of each tier, with the settings that they have by default but for their
// memory, and a Postgres whose tables lie on a small file system where one can be mounted.
type mesh struct {
	*process.Mesh
	target attack.Target
	pg     *pgserver.Server
	dir    string // of everything
}

// Budgets of the edge in bytes.
const (
	queueMemory = 256 << 20
	frameMemory = 64 << 20
)

// mostRise is how far the memory of an edge or a router may rise: an edge's budgets, what
// handshakes and connections need, and what the garbage collector leaves lying; a router's
// --max-bytes and --edge-queue-bytes.
const mostRise = 512 << 20

// Sizes of the small file systems.
const (
	diskSize = 2 << 30
	logSize  = 1 << 30
)

func startMesh(ctx context.Context, o options) (_ *mesh, err error) {
	defer try.Catch(&err)
	m := &mesh{dir: try.Get(pgserver.TempDir(o.postgresDir))}
	if err := m.start(ctx, o); err != nil {
		return nil, errors.Join(err, m.stop())
	}
	return m, nil
}

func (m *mesh) start(ctx context.Context, o options) (err error) {
	defer try.Catch(&err)
	m.pg = try.Get(pgserver.Start(filepath.Join(m.dir, "postgres"), 0, "max_wal_size=256MB"))
	m.target = attack.Target{Postgres: m.pg.Superuser(), Database: m.pg.URL(), TLS: true, Topics: o.topics, Percent: o.percent}
	try.Do(m.smallDisk())
	cert, key := try.Get2(try.Get(testca.New()).Write(m.dir, "edge", process.Host))
	logs := filepath.Join(m.dir, "logs")
	try.Do(os.Mkdir(logs, 0o755))
	compute := try.Get(m.lowest(filepath.Join(o.bin, "compute")))
	m.Mesh = try.Get(process.New(process.Options{
		NATSServers: 1, Stores: 1, Computes: 1, Routers: 1, Edges: 1, Tied: true, Logs: logs, DBs: []string{m.target.Database},
		Binary: func(program string) string {
			switch program {
			case "nats-server":
				return o.nats
			case "compute":
				return compute
			}
			return filepath.Join(o.bin, program)
		},
		Args: map[string][]string{
			"store": {"--log-level", "warn"}, "router": {"--log-level", "warn"}, "compute": {"--log-level", "warn"},
			"edge": {"--log-level", "warn", "--tls-cert", cert, "--tls-key", key, "--queue-memory", fmt.Sprint(queueMemory), "--frame-memory", fmt.Sprint(frameMemory)},
		},
	}))
	m.target.Edge, m.target.Router, m.target.NATS = m.Edges[0].Addr, m.Routers[0].Addr, m.NATS[0].Addr
	// a build from before does not know the flag
	m.Edges[0].Env = append(m.Edges[0].Env, "PUSHMESH_OPEN=true")
	m.Routers[0].Env = append(m.Routers[0].Env, "PUSHMESH_OPEN=true")
	for _, p := range m.All() {
		try.Do(p.Start())
	}
	within, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	try.Do(m.Ready(within))
	return makeNamespaces(within, m.target.Router, m.processes())
}

// lowest makes a program that runs another one with the lowest priority, as is advised for compute
// nodes that share a machine.
func (m *mesh) lowest(program string) (path string, err error) {
	path = filepath.Join(m.dir, filepath.Base(program))
	return path, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexec nice -n 19 '%s' \"$@\"\n", program), 0o755)
}

// smallDisk has the store's tables lie on a file system in memory, which can be filled. Where this
// process may not mount any there is none.
func (m *mesh) smallDisk() (err error) {
	defer try.Catch(&err)
	disk := filepath.Join(m.dir, "disk")
	try.Do(os.Mkdir(disk, 0o755))
	if err := mount(disk, diskSize); err != nil {
		fmt.Fprintln(os.Stderr, "siege: no small disk: mount:", err)
		return nil
	}
	m.target.Disk = disk
	space := filepath.Join(disk, "space")
	try.Do(errors.Join(os.Mkdir(space, 0o700), m.pg.Own(space)))
	for _, sql := range []string{"CREATE TABLESPACE small LOCATION '" + space + "'", "CREATE DATABASE small TABLESPACE small OWNER " + pgserver.Owner} {
		try.Do(pgserver.Exec(m.pg.Superuser(), sql))
	}
	m.target.Database = m.pg.Database("small")
	return m.smallLog()
}

// smallLog has Postgres's own log lie on another one.
func (m *mesh) smallLog() (err error) {
	defer try.Catch(&err)
	m.target.Log = filepath.Join(m.dir, "log")
	now, wal := filepath.Join(m.pg.Dir(), "data", "pg_wal"), filepath.Join(m.target.Log, "wal")
	try.Do(errors.Join(m.pg.Stop(), os.Mkdir(m.target.Log, 0o755), mount(m.target.Log, logSize), os.CopyFS(wal, os.DirFS(now))))
	try.Do(filepath.WalkDir(wal, func(path string, d fs.DirEntry, err error) error {
		mode := fs.FileMode(0o600)
		if err == nil && d.IsDir() {
			mode = 0o700
		}
		return errors.Join(err, os.Chmod(path, mode), m.pg.Own(path))
	}))
	return errors.Join(os.RemoveAll(now), os.Symlink(wal, now), m.pg.Restart())
}

func mount(dir string, bytes int64) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", bytes))
}

// processes that are watched: those of the mesh that have metrics.
func (m *mesh) processes() []*process.Process { return m.All()[len(m.NATS):] }

// makeNamespaces makes what attacks need, and waits until every process goes by it.
func makeNamespaces(ctx context.Context, router string, ps []*process.Process) (err error) {
	defer try.Catch(&err)
	conn := try.Get(suite.Dial(router))
	defer func() { _ = conn.Close() }()
	api := pushmeshv1.NewNamespaceServiceClient(conn)
	for _, ns := range attack.Namespaces() {
		res := try.Get(api.Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: ns}, grpc.WaitForReady(true)))
		for _, p := range ps {
			tier, _, _ := strings.Cut(p.Name, "-")
			if tier == "compute" {
				continue
			}
			try.Do(suite.Poll(ctx, time.Minute, func() error {
				all, err := p.Metrics(ctx)
				if has := all["pushmesh_"+tier+"_namespaces_version"]; err == nil && has < float64(res.GetNamespace().GetVersion()) {
					err = fmt.Errorf("%s goes by version %v of the namespaces", p.Name, has)
				}
				return err
			}))
		}
	}
	return nil
}

// stop ends everything and removes it.
func (m *mesh) stop() (err error) {
	if m.Mesh != nil {
		for _, p := range m.All() {
			p.Kill()
		}
	}
	if m.pg != nil {
		err = m.pg.Kill()
	}
	for _, disk := range []string{m.target.Disk, m.target.Log} {
		if disk != "" {
			err = errors.Join(err, syscall.Unmount(disk, syscall.MNT_DETACH))
		}
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// memory is the resident bytes of each process by name.
func (m *mesh) memory() map[string]int64 {
	all := map[string]int64{}
	for _, p := range m.processes() {
		if rss, err := procfs.RSS(p.PID()); err == nil {
			all[p.Name] = rss
		}
	}
	return all
}

// metric is the sum of a metric over its labels, at the tier that it names; a histogram is its
// number of observations.
func metric(ctx context.Context, ps []*process.Process, name string) float64 {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	sum := 0.0
	for _, p := range ps {
		tier, _, _ := strings.Cut(p.Name, "-")
		if !strings.HasPrefix(name, "pushmesh_"+tier+"_") {
			continue
		}
		all, err := p.Metrics(ctx)
		if err != nil {
			return -1
		}
		for key, v := range all {
			if base, _, _ := strings.Cut(key, "{"); base == name {
				sum += v
			}
		}
	}
	return sum
}

// revive starts again what ended, and names it.
func (m *mesh) revive(ctx context.Context) (ended []string, err error) {
	for _, p := range m.All() {
		if p.Running() {
			continue
		}
		ended = append(ended, fmt.Sprintf("%s: %v: %s", p.Name, p.End(), p.Tail(600)))
		within, cancel := context.WithTimeout(ctx, time.Minute)
		err = errors.Join(err, p.Start(), p.Ready(within))
		cancel()
	}
	return ended, errors.Join(err, m.revivePostgres())
}

// revivePostgres does what an operator has to where its log had no room.
func (m *mesh) revivePostgres() error {
	if pgserver.Exec(m.pg.Superuser(), "SELECT") == nil {
		return nil
	}
	return m.pg.Restart()
}
