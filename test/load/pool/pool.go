// Package pool measures how the store uses Postgres, and what is left of it in trouble.
package pool

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgserver"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// bench is one run, on one private Postgres.
type bench struct {
	*suite.Run
	messages, reading int

	pg *pgserver.Server
}

// Workers are those of this suite.
var Workers = map[string]suite.Work{"reads": reads}

// New is the suite.
func New(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Span: 2 * time.Second, Timeout: 5 * time.Minute,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&b.messages, "messages", 1_000_000, "how many messages each reader reads")
			f.IntVar(&b.reading, "reading", 0, "--db-reads of the store that is read from; 0: its default")
		},
		Begin: b.begin,
		Parts: func() []suite.Part {
			return []suite.Part{
				{Name: "sizes", Run: b.sizes},
				{Name: "knee", Run: b.knee},
				{Name: "readers", Run: b.readers},
				{Name: "trouble", Run: b.trouble},
			}
		},
	}
}

func (b *bench) begin(context.Context) (end func() error, err error) {
	defer try.Catch(&err)
	data := try.Get(pgserver.TempDir(""))
	if b.pg, err = pgserver.Start(data, 0); err != nil {
		return nil, errors.Join(err, os.RemoveAll(data))
	}
	return func() error { return errors.Join(b.pg.Kill(), os.RemoveAll(data)) }, nil
}
