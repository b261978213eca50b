// Package claims measures claims of exclusive resources from a caller's request to the disk, beside
// etcd's locks on the same machine.
package claims

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// bench is one run: one mesh and one database for all parts.
type bench struct {
	*suite.Run
	callers, conns, waiting, holds int
	rate                           float64

	mesh *local.Mesh
	apis []api
}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Rounds: 3, Span: 8 * time.Second, Timeout: 9*time.Minute + 30*time.Second, Postgres: true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.callers, "callers", 64, "callers of a closed loop, each with one call at a time")
			f.IntVar(&b.conns, "conns", 4, "gRPC connections that the callers share")
			f.Float64Var(&b.rate, "rate", 5000, "pairs a second that are offered where latency is measured")
			f.IntVar(&b.waiting, "waiting", 10_000, "of a long line")
			f.IntVar(&b.holds, "holds", 100_000, "that there are while some expire")
		},
		Check: func() error {
			if b.callers < 1 || b.conns < 1 || b.Span < time.Second || b.rate <= 0 || b.waiting < 20 || b.holds < 10*seen {
				return errors.New("-callers and -conns are 1 at least, -span 1s, -waiting 20, -holds 5000, -rate above 0")
			}
			return nil
		},
		Begin: b.begin,
		// What leaves the machine with more to do comes later.
		Parts: func() []suite.Part {
			return []suite.Part{
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
		},
	}
}

func (b *bench) begin(ctx context.Context) (end func() error, err error) {
	defer try.Catch(&err)
	b.Programs.DB = try.Get(b.DB.Fresh())
	b.mesh = try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	if err := b.prepare(ctx); err != nil {
		b.mesh.Stop()
		return nil, err
	}
	return func() error { b.mesh.Stop(); return nil }, nil
}

// profiles takes those of every tier during a part.
func (b *bench) profiles(ctx context.Context, part string) func() error {
	return b.Profiles(ctx, part, int(b.Span.Seconds())-1, append([]*local.Process{b.mesh.Router, b.mesh.Store}, b.mesh.Edges...)...)
}

// said is what each of n operations took of the CPU, and how busy the generator was.
func said(u *suite.Usage, n int) (_ string, err error) {
	defer try.Catch(&err)
	busy := try.Get(u.Busy())
	each, err := u.Each(int64(n))
	return fmt.Sprintf("%s; the generator took %.0f %% of a core", each, 100*busy), err
}
