// Command routerbench measures the way of a message from a producer over a router and NATS to
// edges, beside nats-server alone, all in one run: `make bench-router`. docs/benchmarks.md says
// what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	programs      local.Programs
	json, profile string
	// tools is the folder of what is built for this alone: edgehold, and the benchmarks of the
	// router's interest table as go test -c builds them.
	tools string
	span  time.Duration
	// sustains is what overload-durable and overload-ephemeral call sustained; 0: they look for it.
	sustains int
	timeout  time.Duration
	only     *regexp.Regexp
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("routerbench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.tools, "tools", "bin", "folder of edgehold and interest.test (go test -c of services/router/internal/interest)")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.StringVar(&c.profile, "profile", "", "also write CPU profiles into this folder")
	f.DurationVar(&c.span, "span", 10*time.Second, "how long a load is held")
	f.IntVar(&c.sustains, "sustains", 0, "messages a second of which overload-* offers multiples; 0: what it finds to be sustained")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute+30*time.Second, "of everything")
	only := f.String("only", "", "run only parts whose name matches; several are separated by commas")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	c.only, err = table.Only(*only)
	if c.span < time.Second {
		err = errors.Join(err, errors.New("-span is 1s at least"))
	}
	return c, err
}

func main() { local.Main("routerbench", run) }

// bench is one run.
type bench struct {
	*config
	dir  local.Dir
	rows []table.Row
}

func (b *bench) add(rows ...table.Row) { b.rows = append(b.rows, rows...) }

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == workerFlag {
		return work(ctx, args[1], os.Stdin, os.Stdout)
	}
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
		{Name: "rate", Run: b.rate},
		{Name: "latency", Run: b.latency},
		{Name: "broadcast", Run: b.broadcast},
		{Name: "interest", Run: b.interest},
		{Name: "interest-ready", Run: b.newRouter},
		{Name: "wildcards", Run: b.wildcards},
		{Name: "overload-durable", Run: b.durableFlood},
		{Name: "overload-ephemeral", Run: b.ephemeralFlood},
		{Name: "overload-greedy", Run: b.greedyOne},
		{Name: "disconnect", Run: b.disconnect},
		{Name: "presence", Run: b.presence},
		{Name: "consume", Run: b.consume},
	}
}
