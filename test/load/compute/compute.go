// Package compute measures ranking: its parts beside the same in C and cel-go, the way through a
// compute node, the pool under mixed jobs, and what all that means for edges on the same machine.
package compute

import (
	"errors"
	"flag"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
)

// bench is one run.
type bench struct {
	*suite.Run
	sources                              string
	isolateRounds, mixRounds, mixWorkers int
	isolateSpan, mixSpan                 time.Duration
	mixLoad                              float64
}

// Workers are those of this suite.
var Workers = map[string]suite.Work{"feed": feed, "spin": spinner}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Rounds: 5, Span: time.Second, Timeout: 9*time.Minute + 30*time.Second, Swarms: true,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.sources, "c", "test/load/compute/c", "folder of what is compared with, in C")
			f.IntVar(&b.isolateRounds, "isolate-rounds", 3, "how often an edge is measured beside compute that is idle, and that is not")
			f.DurationVar(&b.isolateSpan, "isolate-span", 8*time.Second, "how long each time; lag is that of 10 s")
			f.IntVar(&b.mixRounds, "mix-rounds", 3, "how often a mix of short and long jobs is held")
			f.DurationVar(&b.mixSpan, "mix-span", 8*time.Second, "how long each time")
			f.Float64Var(&b.mixLoad, "mix-load", 0.8, "of the workers, by short and long jobs to equal parts")
			f.IntVar(&b.mixWorkers, "mix-workers", 0, "of the compute node that does the mix; 0: one fewer than cores, for who asks needs some")
		},
		Check: func() error {
			if b.mixRounds < 1 || b.mixSpan < 0 || b.isolateRounds < 1 || b.isolateSpan < time.Second {
				return errors.New("-mix-rounds and -isolate-rounds are 1 at least, -isolate-span 1s")
			}
			return nil
		},
		Parts: func() []suite.Part {
			return []suite.Part{
				{Name: "dot", Run: b.Profiled("dot", b.dot)},
				{Name: "trees", Run: b.Profiled("trees", b.trees)},
				{Name: "scorers", Run: b.Profiled("scorers", b.scorers)},
				{Name: "wire", Run: b.wire},
				{Name: "pool", Run: b.Profiled("pool", b.pool)},
				{Name: "node", Run: b.nodePool},
				{Name: "spare", Run: b.spare},
				{Name: "idle", Run: b.shared("SCHED_IDLE", 1.5, "chrt", "--idle", "0")},
				{Name: "nice", Run: b.shared("nice 19", 1.5, "nice", "-n", "19")},
				{Name: "onloop", Run: b.onLoop},
				{Name: "filters", Run: b.filters},
			}
		},
	}
}
