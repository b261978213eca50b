// Command poolbench measures how the store uses Postgres, and what is left of it in trouble: `make
// bench-pool`. docs/benchmarks.md says what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

type config struct {
	programs      local.Programs
	json          string
	span, timeout time.Duration
	messages      int
	reading       int
	only          *regexp.Regexp
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("poolbench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.DurationVar(&c.span, "span", 2*time.Second, "how long one measurement takes")
	f.IntVar(&c.messages, "messages", 1_000_000, "how many messages each reader reads")
	f.IntVar(&c.reading, "reading", 0, "--db-reads of the store that is read from; 0: its default")
	f.DurationVar(&c.timeout, "timeout", 5*time.Minute, "of everything")
	only := f.String("only", "", "run only parts whose name matches: sizes, knee, readers, trouble")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	c.only, err = regexp.Compile(*only)
	return c, err
}

func main() {
	local.Main("poolbench", run)
}

// bench is one run, on one private Postgres.
type bench struct {
	*config
	dir  local.Dir
	pg   *pgtest.Server
	rows []table.Row
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) == 4 && args[0] == "reads" {
		return reads(ctx, args[1], args[2], args[3])
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
	data, err := pgtest.TempDir()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(data) }()
	b := &bench{config: c, dir: local.Dir(dir)}
	if b.pg, err = pgtest.Start(data, 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.pg.Kill()) }()
	fmt.Println("load average at the start:", table.LoadAverage())
	table.Run(ctx, c.only, &b.rows,
		table.Part{Name: "sizes", Run: b.sizes},
		table.Part{Name: "knee", Run: b.knee},
		table.Part{Name: "readers", Run: b.readers},
		table.Part{Name: "trouble", Run: b.trouble},
	)
	return errors.Join(table.Print(os.Stdout, b.rows), table.WriteJSON(c.json, b.rows), ctx.Err())
}
