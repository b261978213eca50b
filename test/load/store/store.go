// Package store measures the durable log from a producer's call to the disk, beside what bare
// programs get out of the same Postgres, all in one run.
package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
)

// bench is one run.
type bench struct {
	*suite.Run
	long                   bool
	bareSpan               time.Duration
	streams, window, frame int
	stored                 []int64
	topics                 int64
}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	stored := ""
	return &suite.Suite{
		Span: time.Minute, Timeout: 9 * time.Minute, Postgres: true,
		Flags: func(f *flag.FlagSet) {
			f.BoolVar(&b.long, "long", false, "the parts that take long instead of the others")
			f.StringVar(&stored, "stored", "1000000,10000000,100000000", "how many messages lie in the log when -long measures")
			f.Int64Var(&b.topics, "topics", 10_000_000, "how many topics a store has when -long measures")
			f.DurationVar(&b.bareSpan, "bare-span", 4*time.Second, "how long each bare program runs")
			f.IntVar(&b.streams, "streams", 2, "producers of the durable load, each with a connection and a stream")
			f.IntVar(&b.window, "window", 64, "frames of one producer that may be unanswered")
			f.IntVar(&b.frame, "frame", 64, "messages in a frame, one for each topic")
		},
		Check: func() error {
			for _, text := range strings.Split(stored, ",") {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return fmt.Errorf("-stored: %w", err)
				}
				b.stored = append(b.stored, n)
			}
			if b.topics < 100_000 {
				return errors.New("-topics is 100000 at least")
			}
			if b.streams < 1 || b.window < 1 || b.frame < 1 || b.Span < time.Second {
				return errors.New("-streams, -window and -frame are 1 at least, -span 1s")
			}
			return nil
		},
		Begin: func(context.Context) (func() error, error) {
			// the arrivals of a run are a large heap without garbage; collecting it takes from whom
			// is measured
			debug.SetGCPercent(400)
			if b.long {
				return nil, roomFor(string(b.Dir), slices.Max(b.stored))
			}
			return nil, nil
		},
		Parts: func() []suite.Part {
			if b.long {
				return []suite.Part{{Name: "disk", Run: b.disk}, {Name: "detach", Run: b.detach}, {Name: "topics", Run: b.manyTopics}, {Name: "growth", Run: b.growth}}
			}
			return []suite.Part{
				{Name: "disk", Run: b.disk},
				{Name: "durable", Run: b.durable},
				{Name: "bare", Run: b.bare},
				{Name: "jetstream", Run: b.jetStream},
				{Name: "single", Run: b.single},
				{Name: "deliver", Run: b.deliver},
				{Name: "sessions", Run: b.sessionLoad},
				{Name: "attach", Run: b.attachLoad},
				{Name: "outbox", Run: b.outbox},
				{Name: "scheduled", Run: b.scheduled},
				{Name: "replay", Run: b.replay},
				{Name: "reader", Run: b.reader},
			}
		},
	}
}
