// Package suite is what all benchmarks share: flags, parts, rows, profiles, workers, and whose CPU
// was used.
package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/disk"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// Run is one run of a suite: what its parts share.
type Run struct {
	Programs local.Programs
	Dir      local.Dir
	// Tools is the folder of what is built for benchmarks alone.
	Tools string
	// Profile is the folder that profiles go to; "": there are none.
	Profile string
	Rounds  int
	Span    time.Duration
	// DB is a Postgres of its own, where the suite asks for one.
	DB *disk.Postgres

	rows []table.Row
}

// Add adds rows to the result.
func (r *Run) Add(rows ...table.Row) { r.rows = append(r.rows, rows...) }

// Rows are those added so far.
func (r *Run) Rows() []table.Row { return r.rows }

// Part of a suite, which adds its own rows.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// Suite is parts that measure one thing.
type Suite struct {
	// Rounds, Span and Timeout are defaults of the flags; without a default, Rounds and Span have
	// no flag.
	Rounds        int
	Span, Timeout time.Duration
	// Flags, if any, declares further ones, and Check says what is wrong with them.
	Flags func(f *flag.FlagSet)
	Check func() error
	// Swarms reports whether threads of swarms and of publishers block in the kernel. Go takes
	// their processors away only after up to 10 ms: without some to spare, what the rest of the
	// load has to do waits as long, and that would be measured as the server's.
	Swarms bool
	// Postgres reports whether the suite needs Run.DB.
	Postgres bool
	// Begin, if any, prepares what all parts use; end, if any, ends that.
	Begin func(ctx context.Context) (end func() error, err error)
	// Parts returns them in the order in which they run, once flags are known.
	Parts func() []Part
}

// options of a run that concern the frame alone.
type options struct {
	json    string
	timeout time.Duration
	only    *regexp.Regexp
}

func (s *Suite) parse(r *Run, name string, args []string) (o options, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&r.Programs.Bin, "bin", "bin", "folder of compute, edge, router and store")
	f.StringVar(&r.Programs.NATS, "nats-server", "bin/nats-server", "nats-server")
	f.StringVar(&r.Tools, "tools", "bin", "folder of what is built for benchmarks alone")
	f.StringVar(&r.Profile, "profile", "", "also write CPU and heap profiles into this folder")
	f.StringVar(&o.json, "json", "", "write the rows to this file")
	f.DurationVar(&o.timeout, "timeout", s.Timeout, "of everything")
	only := f.String("only", "", "run only parts whose name matches; several are separated by commas")
	if s.Rounds > 0 {
		f.IntVar(&r.Rounds, "rounds", s.Rounds, "measurements of each figure, of which the median counts")
	}
	if s.Span > 0 {
		f.DurationVar(&r.Span, "span", s.Span, "how long a load is held")
	}
	if s.Flags != nil {
		s.Flags(f)
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.only, err = regexp.Compile(strings.ReplaceAll(*only, ",", "|"))
	if s.Rounds > 0 && r.Rounds < 1 || s.Span > 0 && r.Span <= 0 {
		err = errors.Join(err, errors.New("-rounds is 1 at least, -span above 0"))
	}
	if s.Check != nil {
		err = errors.Join(err, s.Check())
	}
	return o, err
}

// Main runs a suite with the flags of its command line, and prints and writes the rows.
func Main(ctx context.Context, name string, begin func(*Run) *Suite, args []string) (err error) {
	defer try.Catch(&err)
	r := &Run{}
	s := begin(r)
	o := try.Get(s.parse(r, "bench "+name, args))
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	dir := try.Get(os.MkdirTemp("", "pushmesh-bench-"))
	defer func() { _ = os.RemoveAll(dir) }()
	r.Dir = local.Dir(dir)
	fmt.Println("load average at the start:", table.LoadAverage())
	if s.Swarms {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	}
	if s.Postgres {
		r.DB = try.Get(disk.Start(ctx))
		defer func() { err = errors.Join(err, r.DB.Close()) }()
		fmt.Println("postgres:", r.DB.Settings)
	}
	if s.Begin != nil {
		if end := try.Get(s.Begin(ctx)); end != nil {
			defer func() { err = errors.Join(err, end()) }()
		}
	}
	r.parts(ctx, o.only, s.Parts())
	return errors.Join(table.Print(os.Stdout, r.rows), table.WriteJSON(o.json, r.rows), ctx.Err())
}

// parts runs those whose name matches, one after the other, and says how long each took. What
// failed becomes a row.
func (r *Run) parts(ctx context.Context, only *regexp.Regexp, all []Part) {
	for _, p := range all {
		if !only.MatchString(p.Name) {
			continue
		}
		began := time.Now()
		if err := p.Run(ctx); err != nil {
			r.Add(table.Failed(p.Name, "-", err))
		}
		fmt.Printf("# %s took %.0f s, load average %s\n", p.Name, time.Since(began).Seconds(), table.LoadAverage())
	}
}
