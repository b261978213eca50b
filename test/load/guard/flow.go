package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// tail runs a flow for a span and gives the p99 of deliveries in ms, and how many messages there
// were. Half a second before does not count.
func tail(ctx context.Context, f *flow.Flow, span time.Duration) (p99 float64, sent int, err error) {
	sent, err = f.Run(ctx, 500*time.Millisecond, span)
	return table.Quantile(f.Took, 0.99), sent, err
}

// fill publishes n messages of so many bytes to a topic, each once the one before is stored.
func fill(ctx context.Context, router, topic string, n, size, batch int) (err error) {
	defer try.Catch(&err)
	p := try.Get(publisher.New(ctx, router, topic, size))
	for ; n > 0 && err == nil; n -= batch {
		err = errors.Join(p.Publish(min(n, batch)), p.Wait(ctx))
	}
	return errors.Join(err, p.Close())
}

// earliest subscribes to one topic from its beginning.
type earliest struct {
	swarm.Push
	topic string
}

// Hello writes Hello and Subscribe at once.
func (d *earliest) Hello(n int) ([]byte, int) {
	b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: fmt.Sprint("late-", n), HeartbeatMs: swarm.Never})
	if err == nil {
		b, err = wire.Append(b, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: d.topic, Start: wirev1.Start_START_EARLIEST})
	}
	if err != nil {
		panic(err) // topics come from the program itself
	}
	return b, 1
}
