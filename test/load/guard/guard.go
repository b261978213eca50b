// Package guard measures what guards an edge and its clients against other clients: what that
// costs, and what it is worth, all in one run.
package guard

import (
	"errors"
	"flag"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
)

// bench is one run.
type bench struct {
	*suite.Run
	conns int
}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Rounds: 3, Span: 4 * time.Second, Timeout: 9*time.Minute + 30*time.Second, Swarms: true,
		Flags: func(f *flag.FlagSet) { f.IntVar(&b.conns, "conns", 15_000, "subscribers of a broadcast") },
		Check: func() error {
			if b.conns < 200 || b.Span < time.Second {
				return errors.New("-conns is 200 at least, -span 1s")
			}
			return nil
		},
		// Each part has a file of its own, named like it.
		Parts: func() []suite.Part {
			return []suite.Part{
				{Name: "stall", Run: b.stall},
				{Name: "catchup", Run: b.catchup},
				{Name: "tls", Run: b.tls},
				{Name: "tls-deliver", Run: b.deliver},
				{Name: "tls-flood", Run: b.tlsFlood},
				{Name: "drain", Run: b.drain},
			}
		},
	}
}
