// Package router measures the way of a message from a producer over a router and NATS to edges,
// beside nats-server alone, all in one run.
package router

import (
	"errors"
	"flag"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
)

// bench is one run.
type bench struct {
	*suite.Run
	// sustains is what overload-durable and overload-ephemeral call sustained; 0: they look for it.
	sustains int
}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Span: 10 * time.Second, Timeout: 9*time.Minute + 30*time.Second,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.sustains, "sustains", 0, "messages a second of which overload-* offers multiples; 0: what it finds to be sustained")
		},
		Check: func() error {
			if b.Span < time.Second {
				return errors.New("-span is 1s at least")
			}
			return nil
		},
		// Each part has a file of its own, named like it.
		Parts: func() []suite.Part {
			return []suite.Part{
				{Name: "rate", Run: b.rate},
				{Name: "latency", Run: b.latency},
				{Name: "broadcast", Run: b.broadcast},
				{Name: "interest", Run: b.interest},
				{Name: "interest-ready", Run: b.newRouter},
				{Name: "wildcards", Run: b.wildcards},
				{Name: "overload-durable", Run: b.durableFlood},
				{Name: "overload-ephemeral", Run: b.ephemeralFlood},
				{Name: "overload-greedy", Run: b.greedyOne},
				{Name: "disconnect", Run: b.disconnect},
				{Name: "presence", Run: b.presence},
				{Name: "consume", Run: b.consume},
			}
		},
	}
}
