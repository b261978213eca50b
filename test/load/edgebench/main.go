// Command edgebench measures what connections and deliveries cost the edge, beside bare loops in C
// and beside other servers, all in one run: `make bench-edge`. docs/benchmarks.md says what the
// rows mean.
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
	programs            local.Programs
	bare, json, profile string
	budget, mail        string
	conns, subs, rounds int
	size                int
	span, hold, open    time.Duration
	timeout             time.Duration
	only, servers       *regexp.Regexp
	versus              string
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("edgebench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.bare, "bare", "", "folder of bare-write and bare-uring")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.StringVar(&c.profile, "profile", "", "also write CPU and heap profiles of the edge into this folder")
	f.StringVar(&c.budget, "budget", "", "the edge's budget tests, as go test -c builds them of services/edge/internal/hub")
	f.StringVar(&c.mail, "mailbox", "", "the benchmark of the edge's mailbox, as go test -c builds it of services/edge/internal/mailbox")
	f.IntVar(&c.conns, "conns", 15_000, "idle connections, and subscribers of the large fan-out")
	f.IntVar(&c.subs, "subs", 1000, "subscribers of the small fan-out")
	f.IntVar(&c.rounds, "rounds", 3, "measurements of each figure, of which the median counts")
	f.IntVar(&c.size, "size", 128, "bytes of payload")
	f.DurationVar(&c.span, "span", 1500*time.Millisecond, "how long one measurement publishes")
	f.DurationVar(&c.open, "open", 12*time.Second, "how long latency is measured for each row")
	f.DurationVar(&c.hold, "hold", 33*time.Second, "how long connections idle")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute, "of everything")
	f.StringVar(&c.versus, "versus", "", "folder of edge, router and store of another build, to be measured in turns with -bin (delivery)")
	servers := f.String("servers", "", "measure only servers whose name matches, beside edge and bare-write (delivery)")
	only := f.String("only", "", "run only parts whose name matches: idle, delivery, latency, allocations, collector, stalls, flood, mailbox")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if c.only, err = regexp.Compile(*only); err == nil {
		c.servers, err = regexp.Compile(*servers)
	}
	if c.conns < 1 || c.subs < 1 || c.rounds < 1 || c.size < 20 {
		err = errors.Join(err, errors.New("-conns, -subs and -rounds are 1 at least, -size 20"))
	}
	return c, err
}

func main() {
	// The threads of the swarm and of the publisher block in the kernel, and Go takes their
	// processors away only after up to 10 ms: without some to spare, what the rest of the load has
	// to do waits as long, and that would be measured as the server's.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	local.Main("edgebench", run)
}

// bench is one run.
type bench struct {
	*config
	dir  local.Dir
	rows []table.Row
}

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
	table.Run(ctx, c.only, &b.rows,
		table.Part{Name: "idle", Run: b.idle},
		table.Part{Name: "delivery", Run: b.delivery},
		table.Part{Name: "latency", Run: b.latency},
		table.Part{Name: "allocations", Run: b.allocations},
		table.Part{Name: "collector", Run: b.collector},
		table.Part{Name: "stalls", Run: b.stalls},
		table.Part{Name: "flood", Run: b.flood},
		table.Part{Name: "mailbox", Run: b.mailbox},
	)
	return errors.Join(table.Print(os.Stdout, b.rows), table.WriteJSON(c.json, b.rows), ctx.Err())
}
