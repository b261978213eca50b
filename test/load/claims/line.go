package claims

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// goalFlat is by how much more anything may take where much is going on beside it, or before it in
// the line.
const goalFlat = 1.2

// shortLine is what a long one is compared with, and moves how often each is joined, left and
// handed over in a round.
const (
	shortLine = 10
	moves     = 300
)

// queue is a resource with a holder and a line of a length that stays.
type queue struct {
	api
	resource string
	names    []string // who waits, first first
	holder   string
	token    uint64
	n        int // of the next name

	join, leave, hand []time.Duration
	store             []float64 // µs of CPU for a move, by round
}

func (b *bench) queue(ctx context.Context, resource string, length int) (_ *queue, err error) {
	defer try.Catch(&err)
	q := &queue{api: b.apis[0], resource: resource, holder: "first"}
	q.token = try.Get(q.acquire(ctx, resource, q.holder, time.Hour))
	q.names = make([]string, length)
	try.Do(suite.Each(length, 32, func(w, i int) error {
		name := fmt.Sprintf("w-%d", i)
		st, err := b.apis[w%len(b.apis)].ask(ctx, resource, name, time.Minute)
		if at := int(st.GetPosition()); err == nil && at > 0 && at <= length {
			q.names[at-1] = name // nobody leaves meanwhile
		}
		return err
	}))
	if i := slices.Index(q.names, ""); i >= 0 {
		return nil, fmt.Errorf("%s: nobody is at position %d", resource, i+1)
	}
	q.n = length
	return q, nil
}

func (q *queue) name() string { q.n++; return fmt.Sprintf("w-%d", q.n) }

// move has one join at the end and leave again, and hands the resource over to the first, whose
// place at the end another takes. The stream at which the first is told is there before.
func (q *queue) move(ctx context.Context) (err error) {
	defer try.Catch(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	passing := q.name()
	began := time.Now()
	try.Do(q.api.join(ctx, q.resource, passing))
	q.join = append(q.join, time.Since(began))
	began = time.Now()
	try.Do(q.api.leave(ctx, q.resource, passing))
	q.leave = append(q.leave, time.Since(began))
	next := try.Get(q.watch(ctx, q.resource, q.names[0]))
	began = time.Now()
	try.Do(q.release(ctx, q.resource, q.holder, q.token))
	q.token = try.Get(next.wait(ctx))
	q.hand = append(q.hand, next.at.Sub(began))
	last := q.name()
	q.holder, q.names = q.names[0], append(q.names[1:], last)
	return q.api.join(ctx, q.resource, last)
}

// line compares a short line and a long one, in turn.
func (b *bench) line(ctx context.Context) (err error) {
	defer try.Catch(&err)
	short := try.Get(b.queue(ctx, plain+"/line-short", shortLine))
	long := try.Get(b.queue(ctx, plain+"/line-long", b.waiting))
	var join, leave, hand, cpu []float64
	for range b.Rounds {
		for _, q := range []*queue{short, long} {
			before := try.Get(procfs.CPU(b.mesh.Store.PID()))
			q.join, q.leave, q.hand = nil, nil, nil
			for range moves {
				try.Do(q.move(ctx))
			}
			after := try.Get(procfs.CPU(b.mesh.Store.PID()))
			q.store = append(q.store, (after-before).Seconds()*1e6/moves)
		}
		ratio := func(a, b []time.Duration) float64 { return table.Quantile(a, 0.5) / table.Quantile(b, 0.5) }
		join, leave, hand = append(join, ratio(long.join, short.join)), append(leave, ratio(long.leave, short.leave)), append(hand, ratio(long.hand, short.hand))
	}
	cpu = table.Ratios(long.store, short.store)
	row := func(what string, ratios []float64, s, l []time.Duration) table.Row {
		return table.AtMost(fmt.Sprintf("%s with %d waiting, to that with %d", what, b.waiting, shortLine), table.Median(ratios), "ratio", goalFlat,
			fmt.Sprintf("rounds %s; medians %.2f and %.2f ms", table.Spread(ratios), table.Quantile(l, 0.5), table.Quantile(s, 0.5)))
	}
	b.Add(row("join", join, short.join, long.join), row("leave", leave, short.leave, long.leave), row("hand-over", hand, short.hand, long.hand),
		table.AtMost("CPU of the store for the three, likewise", table.Median(cpu), "ratio", goalFlat,
			fmt.Sprintf("rounds %s; %.0f and %.0f µs", table.Spread(cpu), table.Median(long.store), table.Median(short.store))))
	return nil
}
