// Command computebench measures ranking: its parts beside the same in C and cel-go, the way through
// a compute node, the pool under mixed jobs, and what all that means for edges on the same machine:
// `make bench-compute`. docs/benchmarks.md says what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	programs                      local.Programs
	sources, tools, json, profile string
	rounds                        int
	span                          time.Duration
	isolateRounds                 int
	isolateSpan                   time.Duration
	mixRounds                     int
	mixSpan                       time.Duration
	mixLoad                       float64
	mixWorkers                    int
	timeout                       time.Duration
	only                          *regexp.Regexp
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("computebench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of compute, edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.sources, "c", "test/load/computebench/c", "folder of what is compared with, in C")
	f.StringVar(&c.tools, "tools", "bin", "folder of edgestall")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.StringVar(&c.profile, "profile", "", "also write CPU profiles into this folder")
	f.IntVar(&c.rounds, "rounds", 5, "measurements of each figure, of which the median counts")
	f.DurationVar(&c.span, "span", time.Second, "how long one measurement takes")
	f.IntVar(&c.isolateRounds, "isolate-rounds", 3, "how often an edge is measured beside compute that is idle, and that is not")
	f.DurationVar(&c.isolateSpan, "isolate-span", 8*time.Second, "how long each time; lag is that of 10 s")
	f.IntVar(&c.mixRounds, "mix-rounds", 3, "how often a mix of short and long jobs is held")
	f.DurationVar(&c.mixSpan, "mix-span", 8*time.Second, "how long each time")
	f.Float64Var(&c.mixLoad, "mix-load", 0.8, "of the workers, by short and long jobs to equal parts")
	f.IntVar(&c.mixWorkers, "mix-workers", 0, "of the compute node that does the mix; 0: one fewer than cores, for who asks needs some")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute+30*time.Second, "of everything")
	only := f.String("only", "", "run only parts whose name matches; several are separated by commas")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	c.only, err = table.Only(*only)
	if c.rounds < 1 || c.span <= 0 || c.mixRounds < 1 || c.mixSpan < 0 || c.isolateRounds < 1 || c.isolateSpan < time.Second {
		err = errors.Join(err, errors.New("-rounds, -mix-rounds and -isolate-rounds are 1 at least, -span above 0, -isolate-span 1s"))
	}
	return c, err
}

func main() {
	// What keeps the time of an open loop sleeps in the kernel, and must find a processor of Go's
	// when it wakes, however many jobs run here.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	local.Main("computebench", run)
}

// bench is one run.
type bench struct {
	*config
	dir  local.Dir
	rows []table.Row
}

func (b *bench) add(rows ...table.Row) { b.rows = append(b.rows, rows...) }

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == feedFlag {
		return feed(ctx, args[1:], os.Stdin, os.Stdout)
	}
	if len(args) > 0 && args[0] == spinFlag {
		return spinner(args[1:], os.Stdin, os.Stdout)
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

// parts in the order in which they run.
func (b *bench) parts() []table.Part {
	return []table.Part{
		{Name: "dot", Run: b.profiled("dot", b.dot)},
		{Name: "trees", Run: b.profiled("trees", b.trees)},
		{Name: "scorers", Run: b.profiled("scorers", b.scorers)},
		{Name: "wire", Run: b.wire},
		{Name: "pool", Run: b.profiled("pool", b.pool)},
		{Name: "node", Run: b.nodePool},
		{Name: "spare", Run: b.spare},
		{Name: "idle", Run: b.shared("SCHED_IDLE", 1.5, "chrt", "--idle", "0")},
		{Name: "nice", Run: b.shared("nice 19", 1.5, "nice", "-n", "19")},
		{Name: "onloop", Run: b.onLoop},
		{Name: "filters", Run: b.filters},
	}
}

// profiled writes a CPU profile of what a part does in this process, where -profile asks for it.
func (b *bench) profiled(name string, part func(context.Context) error) func(context.Context) error {
	if b.profile == "" {
		return part
	}
	return func(ctx context.Context) error {
		f, err := b.profileFile(name)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		err = part(ctx)
		pprof.StopCPUProfile()
		return errors.Join(err, f.Close())
	}
}
