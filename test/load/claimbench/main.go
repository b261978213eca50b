// Command claimbench measures claims from a caller's request to the disk, beside etcd's locks on
// the same machine: `make bench-claims`. docs/benchmarks.md says what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/pushmesh/pushmesh/test/load/disk"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	programs               local.Programs
	etcd, lockload         string
	json, profile          string
	span                   time.Duration
	callers, conns, rounds int
	rate                   float64
	waiting, holds         int
	timeout                time.Duration
	only                   *regexp.Regexp
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("claimbench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.etcd, "etcd", "", "etcd; its rows are left out without it")
	f.StringVar(&c.lockload, "lockload", "", "the load for etcd")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.StringVar(&c.profile, "profile", "", "also write CPU profiles of router, store and edge into this folder")
	f.DurationVar(&c.span, "span", 8*time.Second, "how long a load is held")
	f.IntVar(&c.callers, "callers", 64, "callers of a closed loop, each with one call at a time")
	f.IntVar(&c.conns, "conns", 4, "gRPC connections that the callers share")
	f.IntVar(&c.rounds, "rounds", 3, "how often what is compared is measured, in turn")
	f.Float64Var(&c.rate, "rate", 5000, "pairs a second that are offered where latency is measured")
	f.IntVar(&c.waiting, "waiting", 10_000, "of a long line")
	f.IntVar(&c.holds, "holds", 100_000, "that there are while some expire")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute+30*time.Second, "of everything")
	only := f.String("only", "", "run only parts whose name matches; several are separated by commas")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	c.only, err = table.Only(*only)
	if c.callers < 1 || c.conns < 1 || c.rounds < 1 || c.span < time.Second || c.rate <= 0 || c.waiting < 20 || c.holds < 1000 {
		err = errors.Join(err, errors.New("-callers, -conns, -rounds are 1 at least, -span 1s, -waiting 20, -holds 1000, -rate above 0"))
	}
	return c, err
}

func main() { local.Main("claimbench", run) }

// bench is one run: one mesh and one database for all parts.
type bench struct {
	*config
	dir  local.Dir
	db   *disk.Postgres
	mesh *local.Mesh
	apis []api
	rows []table.Row
}

func (b *bench) add(rows ...table.Row) { b.rows = append(b.rows, rows...) }

func run(ctx context.Context, args []string) (err error) {
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
	if b.db, err = disk.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	if c.programs.DB, err = b.db.Fresh(); err != nil {
		return err
	}
	if b.mesh, err = b.dir.StartMesh(ctx, c.programs, 1); err != nil {
		return err
	}
	defer b.mesh.Stop()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	fmt.Println("load average at the start:", table.LoadAverage())
	fmt.Println("postgres:", b.db.Settings)
	table.Run(ctx, c.only, &b.rows, b.parts()...)
	return errors.Join(table.Print(os.Stdout, b.rows), table.WriteJSON(c.json, b.rows), ctx.Err())
}

// parts in the order in which they run: what leaves the machine with more to do comes later.
func (b *bench) parts() []table.Part {
	return []table.Part{
		{Name: "pairs", Run: b.pairs},
		{Name: "paced", Run: b.paced},
		{Name: "tcp", Run: b.tcpPairs},
		{Name: "hot", Run: b.hot},
		{Name: "etcd", Run: b.reference},
		{Name: "line", Run: b.line},
		{Name: "beside", Run: b.beside},
		{Name: "slow", Run: b.slow},
		{Name: "expiry", Run: b.expiry},
	}
}
