// Package develop has the commands that run a mesh on this machine.
package develop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/dev"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/replay"
)

// Dev is the command pushmesh dev.
type Dev struct {
	Data      string `default:"data" type:"path" placeholder:"DIR" help:"Folder of the database (${default})."`
	PortsFrom int    `default:"7400" placeholder:"N" help:"First port: edge N, router N+1, compute N+2, store N+3; their HTTP ports are 80 higher, and the playground N+84. 0: any free ports (${default})."`

	EdgeListen    string `placeholder:"HOST:PORT" help:"Address for subscribers (TCP)."`
	EdgeHTTP      string `name:"edge-http" placeholder:"HOST:PORT" help:"Address of the edge's health and metrics."`
	RouterListen  string `placeholder:"HOST:PORT" help:"Address of the public gRPC API."`
	RouterHTTP    string `name:"router-http" placeholder:"HOST:PORT" help:"Address of the router's health and metrics."`
	ComputeListen string `placeholder:"HOST:PORT" help:"Address of the compute node's gRPC API."`
	ComputeHTTP   string `name:"compute-http" placeholder:"HOST:PORT" help:"Address of the compute node's health and metrics."`
	StoreListen   string `placeholder:"HOST:PORT" help:"Address of the store's gRPC API."`
	StoreHTTP     string `name:"store-http" placeholder:"HOST:PORT" help:"Address of the store's health and metrics."`

	PlaygroundListen string `placeholder:"HOST:PORT" help:"Address of the playground, a page that shows in a browser what a mesh does; on loopback."`
	NoPlayground     bool   `help:"Serve no playground, and make no namespace play for it."`

	WebSocketOrigins []string `name:"websocket-origins" placeholder:"ORIGIN" help:"Pages that may open WebSockets beside the playground, separated by commas: http://localhost:5173, https://*.example.com, same-host for those of the edge's host, or * for all; by default same-host."`

	ProducerRate     int           `default:"100000" placeholder:"N" help:"Messages a second that one producer may publish (${default})."`
	ProducerInFlight int           `default:"10000" placeholder:"N" help:"Messages that one producer may have unanswered (${default})."`
	Loops            int           `default:"0" placeholder:"N" help:"Event loops of the edge; 0: one per core."`
	Poller           string        `enum:"auto,epoll,net" default:"auto" help:"Source of socket events: auto, epoll (Linux) or net (every system, slower) (${default})."`
	LogLevel         string        `enum:"debug,info,warn,error" default:"warn" help:"Lowest level that is logged: debug, info, warn or error (${default})."`
	Grace            time.Duration `default:"15s" placeholder:"D" help:"How long a planned stop may take (${default})."`

	Replay string `type:"existingfile" placeholder:"FILE" help:"When the mesh is up, play this recorded chat (see pushmesh replay)."`
	Exit   bool   `help:"With --replay: stop when it ends, with its result as the last line and its exit code."`
}

// Help of the command.
func (Dev) Help() string {
	return `Everything listens on loopback. Messages are kept in DIR/pushmesh.db and survive restarts. Ctrl-C stops the mesh.
The playground is a page for a browser: a chat, ranked prices, a seat to claim and any topic, with the frames that go by.

  pushmesh dev
  pushmesh dev --data /tmp/mesh --ports-from 0
  pushmesh dev --websocket-origins http://localhost:5173    # your own page, as its development server serves it
  pushmesh dev --replay deploy/sample/rooms.jsonl.gz --exit`
}

func (c *Dev) settings() dev.Settings {
	s := dev.Settings{
		Data: c.Data,
		Edge: c.EdgeListen, EdgeHTTP: c.EdgeHTTP, Router: c.RouterListen, RouterHTTP: c.RouterHTTP,
		Compute: c.ComputeListen, ComputeHTTP: c.ComputeHTTP, Store: c.StoreListen, StoreHTTP: c.StoreHTTP,
		Playground: c.PlaygroundListen, NoPlayground: c.NoPlayground, WebSocketOrigins: c.WebSocketOrigins,
		ProducerRate: c.ProducerRate, ProducerInFlight: c.ProducerInFlight,
		Loops: c.Loops, Poller: c.Poller, LogLevel: c.LogLevel, Grace: c.Grace,
	}
	s.Ports(c.PortsFrom)
	return s
}

// Run starts the mesh, replays what was asked for, and stays until a signal.
func (c *Dev) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.Exit && c.Replay == "" {
		return cmdline.Usage("--exit needs --replay")
	}
	if c.PortsFrom < 0 || c.PortsFrom > 65535-84 {
		return cmdline.Usage("--ports-from is %d, must be 0 to %d", c.PortsFrom, 65535-84)
	}
	set := c.settings()
	if err := set.Check(); err != nil {
		return cmdline.Usage("%w", err)
	}
	mesh, err := dev.New(set)
	if err != nil {
		return err
	}
	if err := mesh.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w (--ports-from chooses other ports)", err)
		}
		return err
	}
	var result *replay.Result
	err = c.serve(ctx, stdio.Out, mesh, &result)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Grace)
	defer cancel()
	err = errors.Join(err, mesh.Stop(stop))
	if err == nil {
		fmt.Fprintln(stdio.Out, "stopped; messages are kept in", mesh.Database())
	}
	if c.Exit && result != nil {
		return errors.Join(err, finish(stdio.Out, *result))
	}
	return err
}

// serve is what happens between start and stop.
func (c *Dev) serve(ctx context.Context, out io.Writer, mesh *dev.Mesh, result **replay.Result) error {
	addrs := mesh.Addrs()
	printAddrs(out, addrs, mesh.Database())
	if c.Replay != "" {
		r, err := c.replay(ctx, out, addrs)
		*result = &r
		if err != nil && ctx.Err() == nil && c.Exit {
			return err
		}
		if c.Exit || ctx.Err() != nil {
			return nil
		}
		fmt.Fprintln(out, r.Line())
	}
	printNext(out, addrs)
	<-ctx.Done()
	return nil
}

func (c *Dev) replay(ctx context.Context, out io.Writer, addrs dev.Addrs) (replay.Result, error) {
	script, err := replay.ReadFile(c.Replay)
	if err != nil {
		return replay.Result{}, err
	}
	limit, err := connectionsHere(2)
	if err != nil {
		return replay.Result{}, err
	}
	fmt.Fprintln(out, "\nreplaying", c.Replay, "- every user of a room is a TCP subscriber, every line said is published:")
	r, err := replay.Run(ctx, script, replay.Options{
		Edges: []string{addrs.Edge}, Routers: []string{addrs.Router}, MaxConnections: limit, Out: out,
	})
	if r.Expected > 0 {
		fmt.Fprintln(out, r.Summary())
	}
	return r, err
}

func printAddrs(out io.Writer, a dev.Addrs, database string) {
	fmt.Fprintln(out, "pushmesh is up:")
	if a.Playground != "" {
		fmt.Fprintln(out, "  playground         ", a.Playground)
	}
	fmt.Fprintf(out, `  subscribers (TCP)   %s   health and metrics http://%s
  public API (gRPC)   %s   health and metrics http://%s
  compute (gRPC)      %s   health and metrics http://%s
  store (gRPC)        %s   health and metrics http://%s
  messages are kept in %s
Everybody who reaches these ports may do everything: no client shows a token (--open).
`, a.Edge, a.EdgeHTTP, a.Router, a.RouterHTTP, a.Compute, a.ComputeHTTP, a.Store, a.StoreHTTP, database)
}

// printNext says what to do now. The link to the playground comes last and alone: above are the
// log's lines of the first start, which are long.
func printNext(out io.Writer, a dev.Addrs) {
	self := os.Args[0]
	fmt.Fprintf(out, `
Type in another terminal:
  %[1]s sub 'room/7/#' --ack --edge %[2]s
and in a third one:
  %[1]s pub room/7/chat 'hello' --router %[3]s
  %[1]s history room/7/chat --router %[3]s
Ctrl-C stops; the messages stay.
`, self, a.Edge, a.Router)
	if a.Playground != "" {
		fmt.Fprintf(out, "\nOpen in a browser:\n\n  %s\n\n", a.Playground)
	}
}
