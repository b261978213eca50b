// Command storebench measures the durable log from a producer's call to the disk, beside what bare
// programs get out of the same Postgres, all in one run: `make bench-store`. docs/benchmarks.md
// says what the rows mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/disk"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// config of a run.
type config struct {
	programs       local.Programs
	json, profile  string
	long           bool
	span, bareSpan time.Duration
	timeout        time.Duration
	streams        int
	window         int
	frame          int
	stored         []int64
	only           *regexp.Regexp
}

func parse(args []string) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("storebench", flag.ContinueOnError)
	f.StringVar(&c.programs.Bin, "bin", "bin", "folder of edge, router and store")
	f.StringVar(&c.programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&c.json, "json", "", "write the rows to this file")
	f.StringVar(&c.profile, "profile", "", "also write CPU profiles of router and store into this folder, and one of this program")
	f.BoolVar(&c.long, "long", false, "the parts that take long instead of the others")
	stored := f.String("stored", "1000000,10000000,100000000", "how many messages lie in the log when -long measures")
	f.DurationVar(&c.span, "span", time.Minute, "how long a load is held")
	f.DurationVar(&c.bareSpan, "bare-span", 4*time.Second, "how long each bare program runs")
	f.DurationVar(&c.timeout, "timeout", 9*time.Minute, "of everything")
	f.IntVar(&c.streams, "streams", 2, "producers of the durable load, each with a connection and a stream")
	f.IntVar(&c.window, "window", 64, "frames of one producer that may be unanswered")
	f.IntVar(&c.frame, "frame", 64, "messages in a frame, one for each topic")
	only := f.String("only", "", "run only parts whose name matches")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	for _, text := range strings.Split(*stored, ",") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("-stored: %w", err)
		}
		c.stored = append(c.stored, n)
	}
	var err error
	c.only, err = regexp.Compile(*only)
	if c.streams < 1 || c.window < 1 || c.frame < 1 || c.span < time.Second {
		err = errors.Join(err, errors.New("-streams, -window and -frame are 1 at least, -span 1s"))
	}
	return c, err
}

func main() {
	// the arrivals of a run are a large heap without garbage; collecting it takes from whom is
	// measured
	debug.SetGCPercent(400)
	local.Main("storebench", run)
}

// bench is one run.
type bench struct {
	*config
	dir  local.Dir
	db   *disk.Postgres
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
	if c.long {
		if err := roomFor(dir, slices.Max(c.stored)); err != nil {
			return err
		}
	}
	b := &bench{config: c, dir: local.Dir(dir)}
	if b.db, err = disk.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.db.Close()) }()
	fmt.Println("load average at the start:", table.LoadAverage())
	fmt.Println("postgres:", b.db.Settings)
	table.Run(ctx, c.only, &b.rows, b.parts()...)
	return errors.Join(table.Print(os.Stdout, b.rows), table.WriteJSON(c.json, b.rows), ctx.Err())
}

func (b *bench) parts() []table.Part {
	if b.long {
		return []table.Part{{Name: "disk", Run: b.disk}, {Name: "growth", Run: b.growth}}
	}
	return []table.Part{
		{Name: "disk", Run: b.disk},
		{Name: "durable", Run: b.durable},
		{Name: "bare", Run: b.bare},
		{Name: "jetstream", Run: b.jetStream},
		{Name: "single", Run: b.single},
		{Name: "deliver", Run: b.deliver},
		{Name: "sessions", Run: b.sessionLoad},
		{Name: "outbox", Run: b.outbox},
		{Name: "scheduled", Run: b.scheduled},
		{Name: "replay", Run: b.replay},
		{Name: "reader", Run: b.reader},
	}
}
