package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// kneeBase is what a statement takes below the knee: so much that the processors of this
	// machine are no bottleneck.
	kneeBase = 40 * time.Millisecond
	// kneeCallers call all the time.
	kneeCallers = 48
	// kneeRoom is how many may be at work at most; kneePool the pool with it, vital connections
	// included.
	kneeRoom = 32
	kneePool = kneeRoom + 4
	// kneeSettle is how long the adaptive limit has to find the knee, kneeCount how long it is
	// counted then.
	kneeSettle = 22 * time.Second
	kneeCount  = 8 * time.Second
)

// bend is the delay of a database that gets in its own way beyond at statements at a time.
func bend(at float64) func(int) time.Duration {
	return func(inFlight int) time.Duration {
		return time.Duration(float64(kneeBase) * math.Pow(max(1, float64(inFlight)/at), 1.5))
	}
}

// knee lets the adaptive limit follow a knee that moves, beside every fixed size that might be
// best.
func (b *bench) knee(ctx context.Context) (err error) {
	defer try.Catch(&err)
	proxy := try.Get(pgtest.NewProxy(b.pg.URL()))
	defer func() { err = errors.Join(err, proxy.Close()) }()
	best := map[float64]float64{}
	sizes := map[float64]int{}
	for _, size := range []int{4, 6, 8, 10, 16, 22, 24, 26, 32} {
		proxy.Delay(nil)
		fixed := try.Get(startNode(ctx, store.Settings{DB: proxy.URL(b.pg.URL()), DBMaxConns: size + 4, DBMinConns: size + 4, DBFixed: true}))
		for _, at := range []float64{8, 24} {
			proxy.Delay(bend(at))
			load(ctx, kneeCallers, b.Span/4, fixed.list)
			if r := load(ctx, kneeCallers, b.Span, fixed.list); r.rate > best[at] {
				best[at], sizes[at] = r.rate, size
			}
		}
		proxy.Delay(nil)
		try.Do(fixed.stop(ctx))
	}
	adaptive := try.Get(startNode(ctx, store.Settings{DB: proxy.URL(b.pg.URL()), DBMaxConns: kneePool, DBMinConns: kneePool}))
	for i, at := range []float64{8, 24, 8} {
		proxy.Delay(bend(at))
		load(ctx, kneeCallers, kneeSettle, adaptive.list)
		r := load(ctx, kneeCallers, kneeCount, adaptive.list)
		name := fmt.Sprintf("goodput within 30 s of moving the knee to %.0f (%d.), of the best fixed size", at, i+1)
		b.Add(table.AtLeast(name, 100*r.rate/best[at], "%", 90,
			fmt.Sprintf("%s; fixed at %d: %.0f/s", r, sizes[at], best[at])))
	}
	proxy.Delay(nil)
	return adaptive.stop(ctx)
}

// list is one small statement.
func (n *node) list(ctx context.Context, caller int) error {
	_, err := n.api.ListSessions(ctx, &meshv1.ListSessionsRequest{User: fmt.Sprint("nobody", caller), Limit: 1})
	return err
}
