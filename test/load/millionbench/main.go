// Command millionbench holds a million connections on one machine and sends to all of them: `make
// bench-million`.
//
// A process may open only so many files, so there is an edge for every 19,000 connections and a
// worker (this program again) that opens them. docs/benchmarks.md says what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/table"
)

const (
	million = 1_000_000
	// fullNeeds is the free memory that a million takes with room to spare.
	fullNeeds = 18 << 30
	// spareFiles is what an edge opens besides connections.
	spareFiles = 1000
	unicasts   = 1000
	heartbeat  = 60 * time.Second
)

type config struct {
	programs local.Programs
	json     string
	conns    int
	hold     time.Duration
	timeout  time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) == 3 && os.Args[1] == workerFlag {
		runtime.GOMAXPROCS(1) // it has one thing to do
		err = work(ctx, os.Args[2], os.Stdin, os.Stdout)
	} else {
		// Children end with the thread that started them, which therefore is the one that lives as
		// long as the process.
		runtime.LockOSThread()
		err = run(ctx, os.Args[1:])
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "millionbench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("millionbench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.IntVar(&c.conns, "conns", million, "connections, if there is memory for them")
	f.DurationVar(&c.hold, "hold", 15*time.Second, "how long all connections idle before the broadcast")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute, "of everything")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	free, err := procfs.Available()
	if err == nil && free < fullNeeds {
		// What a connection takes there and here, all processes included, is well below 14 KiB.
		c.conns = min(c.conns, int(free/(14<<10)))
	}
	if c.conns < 1 {
		err = errors.Join(err, errors.New("no memory for a single connection, or -conns below 1"))
	}
	return c, err
}

// perEdge is how many connections an edge and a worker can hold.
func perEdge() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	n := int(min(limit.Cur, 64_000)) - spareFiles
	if n < 1 {
		return 0, fmt.Errorf("only %d files may be open", limit.Cur)
	}
	return n, nil
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	most, err := perEdge()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "pushmesh-million-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	edges := (c.conns + most - 1) / most
	fmt.Printf("%d connections over %d edges\n", c.conns, edges)
	// One loop and one thread that runs Go each: there are far more edges than cores.
	c.programs.EdgeEnv = []string{"GOMAXPROCS=1"}
	m, err := local.Dir(dir).StartMesh(ctx, c.programs, edges, "--loops", "1", "--shed-lag", "0")
	if err != nil {
		return err
	}
	defer m.Stop()
	r := &race{config: c, mesh: m, dir: local.Dir(dir)}
	defer r.stop()
	if err := r.run(ctx); err != nil {
		r.rows = append(r.rows, table.Failed(fmt.Sprintf("%d connections", c.conns), "-", err))
	}
	return errors.Join(table.Print(os.Stdout, r.rows), table.WriteJSON(c.json, r.rows), ctx.Err())
}
