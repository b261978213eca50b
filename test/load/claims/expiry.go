package claims

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// goalLate is how long after a hold's end the next may be told, in ms, at most.
const goalLate = 100

// Of the holds of expiry: how many have one who waits at a stream, and within how long all end.
const (
	seen     = 500
	endAbout = 20 * time.Second
)

// expiry has as many holds as -holds, a tenth of which end within some seconds, and takes by how
// much those are late who are next at some of them: by the store's clock, the database's, on this
// machine.
func (b *bench) expiry(ctx context.Context) (err error) {
	defer try.Catch(&err)
	try.Do(suite.Each(b.holds*9/10, 32, func(w, i int) error {
		_, err := b.apis[w%len(b.apis)].acquire(ctx, fmt.Sprintf("%s/kept-%d", plain, i), "holder", time.Hour)
		return err
	}))
	began := time.Now()
	ending := b.holds / 10
	waits := make([]*granted, seen)
	ends := make([]time.Time, seen)
	try.Do(suite.Each(ending, 32, func(_, i int) error { return b.ending(ctx, i, began, ending, waits, ends) }))
	var late []time.Duration
	early := 0
	for i, g := range waits {
		try.Get(g.wait(ctx))
		late = append(late, g.at.Sub(ends[i]))
		if g.at.Before(ends[i]) {
			early++
		}
	}
	if early > 0 {
		return fmt.Errorf("%d of %d holds ended before their time", early, seen)
	}
	b.Add(table.AtMost(fmt.Sprintf("end of a hold to the next one's grant, told, with %d holds, p99", b.holds), table.Quantile(late, 0.99), "ms", goalLate,
		fmt.Sprintf("%d of %d that ended; p50 %.2f, max %.2f", seen, ending, table.Quantile(late, 0.5), table.Quantile(late, 1))))
	return nil
}

// ending makes the i-th hold that ends, at its part of the time. The first of them have one who
// waits.
func (b *bench) ending(ctx context.Context, i int, began time.Time, of int, waits []*granted, ends []time.Time) error {
	a, name := b.apis[i%len(b.apis)], fmt.Sprintf("%s/ends-%d", plain, i)
	// Those who are seen come from everywhere among the others: i goes up with time, ends don't.
	part := time.Duration(float64(i*7919%of) / float64(of) * float64(endAbout/2))
	st, err := a.ask(ctx, name, "holder", time.Until(began.Add(endAbout+part)))
	if err != nil || i >= seen {
		return err
	}
	ends[i] = time.UnixMicro(int64(st.GetExpiresAt())) // #nosec G115 -- a time
	if err := a.join(ctx, name, "next"); err != nil {
		return err
	}
	waits[i], err = a.watch(ctx, name, "next")
	return err
}
