// Package edge measures what connections and deliveries cost the edge, beside bare loops in C and
// beside other servers, all in one run.
package edge

import (
	"errors"
	"flag"
	"regexp"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
)

// bench is one run.
type bench struct {
	*suite.Run
	conns, subs, size int
	hold, open        time.Duration
	servers           *regexp.Regexp
	versus            string
}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	servers := ""
	return &suite.Suite{
		Rounds: 3, Span: 1500 * time.Millisecond, Timeout: 9 * time.Minute, Swarms: true,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.conns, "conns", 15_000, "idle connections, and subscribers of the large fan-out")
			f.IntVar(&b.subs, "subs", 1000, "subscribers of the small fan-out")
			f.IntVar(&b.size, "size", 128, "bytes of payload")
			f.DurationVar(&b.open, "open", 12*time.Second, "how long latency is measured for each row")
			f.DurationVar(&b.hold, "hold", 33*time.Second, "how long connections idle")
			f.StringVar(&b.versus, "versus", "", "folder of edge, router and store of another build, to be measured in turns with -bin (delivery)")
			f.StringVar(&servers, "servers", "", "measure only servers whose name matches, beside edge and bare-write (delivery)")
		},
		Check: func() (err error) {
			if b.servers, err = regexp.Compile(servers); err == nil && (b.conns < 1 || b.subs < 1 || b.size < 20) {
				err = errors.New("-conns and -subs are 1 at least, -size 20")
			}
			return err
		},
		Parts: func() []suite.Part {
			return []suite.Part{
				{Name: "idle", Run: b.idle},
				{Name: "delivery", Run: b.delivery},
				{Name: "latency", Run: b.latency},
				{Name: "allocations", Run: b.allocations},
				{Name: "collector", Run: b.collector},
				{Name: "stalls", Run: b.stalls},
				{Name: "flood", Run: b.flood},
				{Name: "mailbox", Run: b.mailbox},
			}
		},
	}
}
