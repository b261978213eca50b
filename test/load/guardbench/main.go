// Command guardbench measures what guards an edge and its clients against other clients: what that
// costs, and what it is worth, all in one run: `make bench-edge-guard`. docs/benchmarks.md says
// what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	programs      local.Programs
	json          string
	conns, rounds int
	span, timeout time.Duration
	only          *regexp.Regexp
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("guardbench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.IntVar(&c.conns, "conns", 15_000, "subscribers of a broadcast")
	f.IntVar(&c.rounds, "rounds", 3, "measurements of each figure, of which the median counts")
	f.DurationVar(&c.span, "span", 4*time.Second, "how long a load is held")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute+30*time.Second, "of everything")
	only := f.String("only", "", "run only parts whose name matches; several are separated by commas")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	c.only, err = table.Only(*only)
	if c.conns < 200 || c.rounds < 1 || c.span < time.Second {
		err = errors.Join(err, errors.New("-conns is 200 at least, -rounds 1, -span 1s"))
	}
	return c, err
}

func main() {
	// Threads of swarms block in the kernel; see edgebench.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	local.Main("guardbench", run)
}

// bench is one run.
type bench struct {
	*config
	dir  local.Dir
	rows []table.Row
}

func (b *bench) add(rows ...table.Row) { b.rows = append(b.rows, rows...) }

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "pushmesh-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{config: c, dir: local.Dir(dir)}
	fmt.Println("load average at the start:", table.LoadAverage())
	table.Run(ctx, c.only, &b.rows, b.parts()...)
	return errors.Join(table.Print(os.Stdout, b.rows), table.WriteJSON(c.json, b.rows), ctx.Err())
}

// parts in the order in which they run. Each has a file of its own, named like it.
func (b *bench) parts() []table.Part {
	return []table.Part{
		{Name: "stall", Run: b.stall},
		{Name: "catchup", Run: b.catchup},
		{Name: "tls", Run: b.tls},
		{Name: "tls-flood", Run: b.tlsFlood},
		{Name: "drain", Run: b.drain},
	}
}
