package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// goals of pairs on resources of their own, per second, and in ms.
const (
	goalPairs = 5000
	goalPair  = 10
)

// caller does a pair, the n-th on its resource.
type caller func(ctx context.Context, i, n int) error

// pair over gRPC: acquire, granted at once, and release.
func (b *bench) pair(prefix string) caller {
	return func(ctx context.Context, i, n int) error {
		a, resource := b.apis[i%len(b.apis)], fmt.Sprintf("%s/%s-%d-%d", plain, prefix, i, n%64)
		token, err := a.acquire(ctx, resource, "owner", time.Minute)
		if err != nil {
			return err
		}
		return a.release(ctx, resource, "owner", token)
	}
}

// open offers pairs at a rate, each timed from when it was due, by as many callers as it takes up
// to a bound.
func open(ctx context.Context, rate float64, span time.Duration, callers int, do caller) (took []time.Duration, err error) {
	every := time.Duration(float64(time.Second) / rate)
	total := int(rate * span.Seconds())
	began := time.Now()
	next := make(chan int, total) // whoever is late finds all that are due
	go func() {
		defer close(next)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 0; n < total && ctx.Err() == nil; <-tick.C {
			for due := min(total, int(time.Since(began)/every)+1); n < due; n++ {
				next <- n
			}
		}
	}()
	all := make([][]time.Duration, callers)
	err = suite.Each(callers, callers, func(_, i int) (err error) {
		for n := range next {
			if err == nil {
				err = do(ctx, i, n)
			}
			if err == nil {
				all[i] = append(all[i], time.Since(began.Add(time.Duration(n)*every)))
			}
		}
		return errors.Join(err, ctx.Err())
	})
	return slices.Concat(all...), err
}

// pairs as fast as they go.
func (b *bench) pairs(ctx context.Context) error {
	if _, err := suite.Closed(ctx, b.callers, time.Second, b.pair("warm")); err != nil {
		return err
	}
	profiled := b.profiles(ctx, "pairs")
	return errors.Join(b.loops(ctx, "gRPC", "callers", b.pair("pair")), profiled())
}

// loops are closed ones: by all callers, for the rate, and by half and a quarter of them, who wait
// for each other less.
func (b *bench) loops(ctx context.Context, way, who string, do caller) (err error) {
	defer try.Catch(&err)
	for _, callers := range []int{b.callers, (b.callers + 1) / 2, (b.callers + 3) / 4} {
		var rates, p99 []float64
		var text string
		var took []time.Duration
		for range b.Rounds {
			u := try.Get(b.UsingMesh(b.mesh))
			began := time.Now()
			took = try.Get(suite.Closed(ctx, callers, b.Span/2, do))
			rates, p99 = append(rates, float64(len(took))/time.Since(began).Seconds()), append(p99, table.Quantile(took, 0.99))
			text = try.Get(said(u, len(took)))
		}
		b.Add(table.AtLeast(fmt.Sprintf("%s: pairs on distinct resources, %d %s", way, callers, who), table.Median(rates), "pairs/s", goalPairs, fmt.Sprintf("rounds %s; %s", table.Spread(rates), text)),
			table.AtMost(fmt.Sprintf("%s: a pair among these, %d %s, p99", way, callers, who), table.Median(p99), "ms", goalPair,
				fmt.Sprintf("rounds %s; p50 %.2f, max %.2f", table.Spread(p99), table.Quantile(took, 0.5), table.Quantile(took, 1))))
	}
	return nil
}

func quantiles(name string, took []time.Duration) table.Row {
	return table.Figure(name+", p99", table.Quantile(took, 0.99), "ms", fmt.Sprintf("p50 %.2f, p99.9 %.2f, max %.2f", table.Quantile(took, 0.5), table.Quantile(took, 0.999), table.Quantile(took, 1)))
}

// paced is the latency of pairs at a rate that is offered whether the mesh keeps up or not.
func (b *bench) paced(ctx context.Context) (err error) {
	defer try.Catch(&err)
	var p99 []float64
	text := ""
	for range b.Rounds {
		u := try.Get(b.UsingMesh(b.mesh))
		took := try.Get(open(ctx, b.rate, b.Span/2, 4*b.callers, b.pair("paced")))
		text = try.Get(said(u, len(took)))
		p99 = append(p99, table.Quantile(took, 0.99))
		text = fmt.Sprintf("p50 %.2f; %s", table.Quantile(took, 0.5), text)
	}
	b.Add(table.AtMost(fmt.Sprintf("gRPC: a pair at %.0f/s, p99", b.rate), table.Median(p99), "ms", goalPair, fmt.Sprintf("rounds %s; the last: %s", table.Spread(p99), text)))
	// What is left when callers, router, store and database don't fill two cores.
	slower := b.rate / 2
	took, err := open(ctx, slower, b.Span/2, 4*b.callers, b.pair("paced"))
	if err == nil {
		b.Add(quantiles(fmt.Sprintf("gRPC: a pair at %.0f/s", slower), took))
	}
	return err
}
