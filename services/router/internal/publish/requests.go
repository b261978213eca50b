package publish

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// readyEvery is how often it is looked whether this router can be trusted with messages.
const readyEvery = 50 * time.Millisecond

// requests are taken over NATS, and their replies sent: at a subject of this router, at one that
// routers take turns at, or both. What takes them embeds it. It is a lifecycle.Part; the bus and
// the appender must be started before it.
type requests struct {
	publisher *Publisher
	bus       *bus.Bus
	name      string
	// own subject, "": none.
	own string
	// shared subject, "": none. It is joined once ready says nil: a router that knows no edge yet
	// would route to nobody.
	shared string
	ready  func() error
	// most requests may wait to be taken in, and as many replies to be sent: what is beyond is
	// dropped, and who asked asks again or says so.
	most int
	take func(data []byte, respond func([]byte) error)

	group    *lifecycle.Group
	replies  chan reply
	leave    func()                 // own
	share    atomic.Pointer[func()] // shared
	open     atomic.Int64           // requests without a reply
	draining atomic.Bool
}

// reply to one request, ready to be sent: results come from goroutines that must not wait for NATS.
type reply struct {
	data    []byte
	respond func([]byte) error
}

// Start subscribes; where the subject is shared, in a goroutine and once the router is ready.
func (r *requests) Start(context.Context) error {
	r.leave = func() {}
	if r.own != "" {
		leave, err := r.bus.Subscribe(r.own, r.most, r.take)
		if err != nil {
			return err
		}
		r.leave = leave
	}
	r.group = lifecycle.NewGroup(context.Background())
	r.group.Go(r.name, r.run)
	return nil
}

func (r *requests) run(ctx context.Context) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	if r.shared == "" {
		tick.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case reply := <-r.replies:
			// without NATS who asked hears nothing, as when the request is lost
			_ = reply.respond(reply.data)
			r.open.Add(-1)
		case <-tick.C:
			if r.share.Load() == nil && !r.draining.Load() && r.ready() == nil {
				r.join()
			}
		}
	}
}

func (r *requests) join() {
	leave, err := r.bus.Serve(r.shared, bus.Routers, r.most, r.take)
	if err != nil {
		r.publisher.cfg.Telemetry.Log.Warn("this router does not receive requests that any router may answer", "subject", r.shared, "error", err)
		return
	}
	r.share.Store(&leave)
}

// Drain answers DRAINING from now on: who asks goes to another router.
func (r *requests) Drain() { r.draining.Store(true) }

// Stop ends the subscriptions and waits, until ctx ends, for the replies to what was taken.
func (r *requests) Stop(ctx context.Context) error {
	r.draining.Store(true)
	r.leave()
	if leave := r.share.Load(); leave != nil {
		(*leave)()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.open.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return r.group.Stop(ctx)
}

// begin has the n results of a request gathered, and sent once all are there.
func (r *requests) begin(n int, respond func([]byte) error) *gathered {
	r.open.Add(1)
	return gather(n, func(data []byte) {
		select {
		case r.replies <- reply{data, respond}:
		default:
			r.open.Add(-1)
		}
	}, func() { r.open.Add(-1) })
}
