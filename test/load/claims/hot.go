package claims

import (
	"context"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// goalHandOver is from a release to the grant that the next one is told, in ms, the median.
const goalHandOver = 5

// contenders for one resource, and how often it is handed over.
const (
	contenders = 16
	handOvers  = 400
)

// hot hands one resource over from owner to owner, each of whom waits at a stream: from the call
// that releases to the push.
func (b *bench) hot(ctx context.Context) (err error) {
	defer try.Catch(&err)
	u := try.Get(b.UsingMesh(b.mesh))
	took := try.Get(b.handOvers(ctx, plain+"/hot", contenders, handOvers))
	text, err := said(u, len(took))
	b.Add(table.AtMost(fmt.Sprintf("gRPC: hand-over among %d at one resource, median", contenders), table.Quantile(took, 0.5), "ms", goalHandOver,
		fmt.Sprintf("p99 %.2f, max %.2f; %s", table.Quantile(took, 0.99), table.Quantile(took, 1), text)))
	return err
}

// contender for a resource: its name, and where it is told.
type contender struct {
	api
	name string
	*granted
}

func (b *bench) contend(ctx context.Context, resource, name string, i int) (*contender, error) {
	c := &contender{api: b.apis[i%len(b.apis)], name: name}
	if err := c.join(ctx, resource, name); err != nil {
		return nil, err
	}
	var err error
	c.granted, err = c.watch(ctx, resource, name)
	return c, err
}

// handOvers has n owners wait in a line, each released by the one before and going to its end
// again, so many times.
func (b *bench) handOvers(ctx context.Context, resource string, n, times int) (took []time.Duration, err error) {
	defer try.Catch(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	holder := &contender{api: b.apis[0], name: "c-0"}
	token := try.Get(holder.acquire(ctx, resource, holder.name, time.Minute))
	var line []*contender
	for i := 1; i < n; i++ {
		c := try.Get(b.contend(ctx, resource, fmt.Sprintf("c-%d", i), i))
		line = append(line, c)
	}
	for i := range times {
		began := time.Now()
		try.Do(holder.release(ctx, resource, holder.name, token))
		next := line[0]
		token = try.Get(next.wait(ctx))
		took = append(took, next.at.Sub(began))
		again := try.Get(b.contend(ctx, resource, holder.name, i))
		holder, line = next, append(line[1:], again)
	}
	for _, c := range line {
		try.Do(c.leave(ctx, resource, c.name))
	}
	return took, holder.release(ctx, resource, holder.name, token)
}
