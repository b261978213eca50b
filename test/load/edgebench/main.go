// Command edgebench measures what connections and deliveries cost the edge, beside bare loops in C and beside other servers, all in one
// run: `make bench-edge`. docs/benchmarks.md says what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	programs            local.Programs
	bare, json, profile string
	budget              string
	conns, subs, rounds int
	size                int
	span, hold, timeout time.Duration
	only                *regexp.Regexp
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
	f.IntVar(&c.conns, "conns", 15_000, "idle connections, and subscribers of the large fan-out")
	f.IntVar(&c.subs, "subs", 1000, "subscribers of the small fan-out")
	f.IntVar(&c.rounds, "rounds", 3, "measurements of each figure, of which the median counts")
	f.IntVar(&c.size, "size", 128, "bytes of payload")
	f.DurationVar(&c.span, "span", 1500*time.Millisecond, "how long one measurement publishes")
	f.DurationVar(&c.hold, "hold", 33*time.Second, "how long connections idle")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute, "of everything")
	only := f.String("only", "", "run only parts whose name matches: idle, peers, delivery, latency, allocations")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	c.only, err = regexp.Compile(*only)
	if c.conns < 1 || c.subs < 1 || c.rounds < 1 || c.size < 20 {
		err = errors.Join(err, errors.New("-conns, -subs and -rounds are 1 at least, -size 20"))
	}
	return c, err
}

func main() {
	// Children end with the thread that started them, which therefore is the one that lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "edgebench:", err)
		os.Exit(1)
	}
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
	fmt.Println("load average at the start:", loadAverage())
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"idle", b.idle}, {"delivery", b.delivery}, {"latency", b.latency}, {"allocations", b.allocations},
	} {
		if !c.only.MatchString(part.name) {
			continue
		}
		began := time.Now()
		if err := part.run(ctx); err != nil {
			b.rows = append(b.rows, table.Failed(part.name, "-", err))
		}
		fmt.Printf("# %s took %.0f s, load average %s\n", part.name, time.Since(began).Seconds(), loadAverage())
	}
	return errors.Join(table.Print(os.Stdout, b.rows), table.WriteJSON(c.json, b.rows), ctx.Err())
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil || len(b) < 14 {
		return "unknown"
	}
	return string(b[:14])
}
