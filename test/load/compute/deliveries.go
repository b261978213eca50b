package compute

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	fanTopic = "bench/fan"
	// fanSubs get fanRate messages a second: light work, of which each is timed.
	fanSubs, fanRate, fanSize = 200, 100, 128
	fanWarmUp                 = time.Second
)

// p99 of deliveries, from when their message was due, in ms.
func p99(ctx context.Context, f *flow.Flow, span time.Duration) (float64, error) {
	f.First = true
	_, err := f.Run(ctx, fanWarmUp, span)
	return table.Quantile(f.Took, .99), err
}

// lag of the worst loop's last 100 samples, in ms.
type lag struct{ p99, most float64 }

func edgeLag(ctx context.Context, p *local.Process) (l lag, err error) {
	defer try.Catch(&err)
	all := try.Get(p.Metrics(ctx))
	for to, quantile := range map[*float64]string{&l.p99: "0.99", &l.most: "1"} {
		v, ok := all[fmt.Sprintf(`pushmesh_edge_loop_lag_seconds{of="last_100",quantile="%s"}`, quantile)]
		if !ok {
			return l, fmt.Errorf("%s does not tell its lag", p.Name)
		}
		*to = v * 1000
	}
	return l, nil
}
