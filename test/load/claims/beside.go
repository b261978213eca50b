package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// held resources, each with one who waits, beside which others come and go; besideRate is how many
// pairs a second these are.
const (
	held       = 1000
	besideRate = 300
)

// beside measures pairs at a low rate with and without 1,000 resources held beside them, in turn.
func (b *bench) beside(ctx context.Context) error {
	tokens := make([]uint64, held)
	all := func(do func(a api, i int) error) error {
		return suite.Each(held, 16, func(w, i int) error { return do(b.apis[w%len(b.apis)], i) })
	}
	name := func(i int) string { return fmt.Sprintf("%s/held-%d", plain, i) }
	return b.compare(ctx, fmt.Sprintf("a pair beside %d resources held", held), b.Span,
		func() error {
			return all(func(a api, i int) (err error) {
				if tokens[i], err = a.acquire(ctx, name(i), "holder", time.Minute); err == nil {
					err = a.join(ctx, name(i), "waiter")
				}
				return err
			})
		},
		func() error {
			return all(func(a api, i int) error {
				return errors.Join(a.leave(ctx, name(i), "waiter"), a.release(ctx, name(i), "holder", tokens[i]))
			})
		})
}

// compare gives the latency of pairs while something is so to that without, in turn.
func (b *bench) compare(ctx context.Context, name string, span time.Duration, begin, end func() error) (err error) {
	defer try.Catch(&err)
	var p50, p99, with50, with99 []float64
	for range b.Rounds {
		took := try.Get(open(ctx, besideRate, span, b.callers, b.pair("alone")))
		p50, p99 = append(p50, table.Quantile(took, 0.5)), append(p99, table.Quantile(took, 0.99))
		try.Do(begin())
		took = try.Get(open(ctx, besideRate, span, b.callers, b.pair("beside")))
		with50, with99 = append(with50, table.Quantile(took, 0.5)), append(with99, table.Quantile(took, 0.99))
		try.Do(end())
	}
	row := func(q string, with, without []float64) table.Row {
		ratios := table.Ratios(with, without)
		return table.AtMost(name+", to that alone, "+q, table.Median(ratios), "ratio", goalFlat,
			fmt.Sprintf("rounds %s; %.2f and %.2f ms", table.Spread(ratios), table.Median(with), table.Median(without)))
	}
	b.Add(row("median", with50, p50), row("p99", with99, p99))
	return nil
}
