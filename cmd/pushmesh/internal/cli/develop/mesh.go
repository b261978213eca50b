package develop

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/mesh"
)

type Mesh struct {
	Bin              string        `default:"bin" placeholder:"DIR" help:"Folder of the tiers' binaries (${default})."`
	NATSServer       string        `name:"nats-server" default:"nats-server" placeholder:"PATH" help:"The nats-server binary (${default})."`
	NATSServers      int           `name:"nats-servers" default:"1" placeholder:"N" help:"Number of NATS servers; several form a cluster (${default})."`
	Postgres         string        `placeholder:"URL" help:"Database to use; by default a private Postgres server is started and removed again."`
	Dir              string        `default:"data/mesh" placeholder:"DIR" help:"Folder for logs and state.json (${default})."`
	FreePorts        bool          `help:"Listen on free ports instead of 7400, 7401, …"`
	Restart          bool          `help:"Restart a process that dies, after a second."`
	ProducerRate     int           `default:"100000" placeholder:"N" help:"Messages a second that one producer may publish (${default})."`
	ProducerInFlight int           `default:"10000" placeholder:"N" help:"Messages that one producer may have unanswered (${default})."`
	LogLevel         string        `enum:"debug,info,warn,error" default:"info" help:"Lowest level that is logged: debug, info, warn or error (${default})."`
	Ready            time.Duration `default:"60s" placeholder:"D" help:"How long to wait until all processes are ready (${default})."`
	Grace            time.Duration `default:"20s" placeholder:"D" help:"How long each process may take to stop before it is killed (${default})."`
}

func (Mesh) Help() string {
	return `Starts nats-server, Postgres, a store, a compute node, two routers and two edges as separate processes, waits until all are ready, writes their pids
and addresses to DIR/state.json, and stops them in reverse order on Ctrl-C.

  make mesh
  pushmesh mesh --bin bin --nats-server /usr/sbin/nats-server --restart`
}

// Run runs the mesh until a signal.
func (c *Mesh) Run(ctx context.Context, stdio cmdline.IO) error {
	m, err := mesh.New(mesh.Settings{
		Bin: c.Bin, NATSServer: c.NATSServer, NATSServers: c.NATSServers, Postgres: c.Postgres, Dir: c.Dir, FreePorts: c.FreePorts, Restart: c.Restart,
		ProducerRate: c.ProducerRate, ProducerInFlight: c.ProducerInFlight, LogLevel: c.LogLevel, Ready: c.Ready, Grace: c.Grace,
	}, stdio.Out)
	if err != nil {
		return cmdline.Usage("%w", err)
	}
	if err := m.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	printMesh(stdio.Out, m.State(), c.Dir)
	<-ctx.Done()
	fmt.Fprintln(stdio.Out, "stopping, the edges first …")
	if err := m.Stop(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	fmt.Fprintln(stdio.Out, "stopped")
	return nil
}

func printMesh(out io.Writer, s mesh.State, dir string) {
	fmt.Fprintln(out, "the mesh is up:")
	for _, p := range s.Processes {
		line := fmt.Sprintf("  %-10s pid %-8d %s", p.Name, p.Pid, p.Addr)
		if p.HTTP != "" {
			line += "   http://" + p.HTTP
		}
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, `  postgres   %s
logs and pids in %s
Type in another terminal:
  export PUSHMESH_EDGE=%s PUSHMESH_ROUTER=%s
  bin/pushmesh replay deploy/sample/rooms.jsonl.gz
Ctrl-C stops everything.
`, s.Postgres, filepath.Join(dir, mesh.StateFile), strings.Join(s.Edges, ","), strings.Join(s.Routers, ","))
}
