package develop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/replay"
)

// Replay is the command pushmesh replay.
type Replay struct {
	File           string        `arg:"" type:"existingfile" help:"JSON lines (room, at, kind, user, text), plain or gzip."`
	Speed          float64       `placeholder:"N" help:"Play at N times the original speed; as fast as possible by default."`
	Rooms          int           `placeholder:"N" help:"Play only the first N rooms."`
	Fraction       float64       `placeholder:"F" help:"Play the first rooms that have this fraction of all deliveries together (0.1: a tenth)."`
	Namespace      string        `default:"room" placeholder:"PREFIX" help:"Namespace of the topics; it must be durable (${default})."`
	RoomPrefix     string        `placeholder:"TEXT" help:"Prefix of the rooms' names in topics; by default a new one for each run."`
	MaxConnections int           `placeholder:"N" help:"Most subscribers at the same time (8000, or what the open-files limit allows)."`
	Ahead          int           `default:"50000" placeholder:"N" help:"Most deliveries that may be outstanding before publishing waits (${default})."`
	Window         uint32        `placeholder:"N" help:"Receive window of each subscriber: its most un-ACKed messages; by default the edge's default."`
	Timeout        time.Duration `placeholder:"D" help:"Give up after this time."`
	WebSocket      float64       `name:"websocket" placeholder:"F" help:"Fraction of all connections that are WebSockets (0.5: every second one)."`
	Stall          time.Duration `default:"60s" placeholder:"D" help:"Give up when nothing was delivered for this time (${default})."`
	cmdline.RouterFlag
	cmdline.EdgeFlag
	cmdline.TokenFlag
}

// Help of the command.
func (Replay) Help() string {
	return `Every user of a room becomes one TCP subscriber of NAMESPACE/ROOM/chat with ACK, then every event "say" is published over gRPC in the order of the
file. Every delivery is checked. The last line is, for scripts:

  expected=N delivered=N missing=N duplicate=N disorder=N seconds=S

The flags of TLS are for routers and edges. All subscribers come with the token of --token-file, as one user. The exit code is 0 if every expected delivery arrived, once and in order, and 1 otherwise. Servers may be killed meanwhile: subscribers
reconnect and resume, publishers send again.

  pushmesh replay rooms.jsonl.gz
  pushmesh replay rooms.jsonl.gz --fraction 0.1 --edge 127.0.0.1:7400,127.0.0.1:7410 --router 127.0.0.1:7401,127.0.0.1:7411
  pushmesh replay rooms.jsonl.gz --rooms 3 --speed 600 --websocket 0.5`
}

// Run plays the file.
func (c *Replay) Run(ctx context.Context, stdio cmdline.IO) error {
	if c.WebSocket < 0 || c.WebSocket > 1 {
		return cmdline.Usage("--websocket is %v, it must be 0 to 1", c.WebSocket)
	}
	if c.Fraction < 0 || c.Fraction > 1 || c.Speed < 0 || c.Rooms < 0 || c.MaxConnections < 0 || c.Ahead <= 0 || c.Stall <= 0 {
		return cmdline.Usage("--fraction is 0 to 1; --speed, --rooms and --max-connections are not below 0; --ahead and --stall are above 0")
	}
	if err := c.EdgeFlag.Check(); err != nil {
		return err
	}
	if c.MaxConnections == 0 {
		limit, err := connectionsHere(1)
		if err != nil {
			return err
		}
		c.MaxConnections = limit
	}
	token, err := c.Source(stdio.In)
	if err != nil {
		return err
	}
	dial, err := c.DialOptions()
	if err != nil {
		return err
	}
	dialEdge, err := c.mixed()
	if err != nil {
		return err
	}
	script, err := replay.ReadFile(c.File)
	if err != nil {
		return err
	}
	result, err := replay.Run(ctx, script.Take(c.Rooms, c.Fraction), replay.Options{
		Edges: c.Edge, Routers: c.Router, RouterOptions: dial, DialEdge: dialEdge, Speed: c.Speed, MaxConnections: c.MaxConnections, Ahead: c.Ahead, Window: c.Window,
		Namespace: c.Namespace, Prefix: c.RoomPrefix, Timeout: c.Timeout, Stall: c.Stall, Token: token, Out: stdio.Out,
	})
	if result.Expected == 0 {
		return err
	}
	if err != nil {
		fmt.Fprintln(stdio.Err, "pushmesh: "+cmdline.Explain(err))
	}
	fmt.Fprintln(stdio.Out, result.Summary())
	return finish(stdio.Out, result)
}

// mixed dials edges, with and without WebSocket in turns.
func (c *Replay) mixed() (func(ctx context.Context, addr string) (net.Conn, error), error) {
	plain, err := c.Dialer()
	if err != nil || c.WebSocket == 0 {
		return plain, err
	}
	web, err := c.WebSocketDialer()
	var made atomic.Int64
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if n := float64(made.Add(1)); int64(n*c.WebSocket) > int64((n-1)*c.WebSocket) {
			return web(ctx, addr)
		}
		return plain(ctx, addr)
	}, err
}

// finish prints the last line; a result that is not OK is a failure that the line has told.
func finish(out io.Writer, r replay.Result) error {
	fmt.Fprintln(out, r.Line())
	if !r.OK() {
		return cmdline.ErrReported
	}
	return nil
}

// Connections that a replay opens at most, and descriptors that the rest of the process needs.
const (
	mostConnections = 8000
	spareFiles      = 500
)

// connectionsHere is how many subscribers the open-files limit allows, each costing so many
// descriptors in this process.
func connectionsHere(each uint64) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("open-files limit: %w", err)
	}
	if limit.Cur < 2*spareFiles {
		return 0, errors.New("the open-files limit is below 1,000: raise it with ulimit -n")
	}
	return int(min((limit.Cur-spareFiles)/each, mostConnections)), nil
}
