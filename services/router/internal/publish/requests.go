package publish

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// readyEvery is how often the router checks whether it is ready to receive shared requests.
const readyEvery = 50 * time.Millisecond

// requests receives requests over NATS, and sends their replies: at a subject of this router, at
// one that routers share, or both. The type that handles the requests embeds it. It is a
// lifecycle.Part; the bus and the appender must be started before it.
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
	// maxPending requests may wait to be taken in, and as many replies to be sent: what is beyond
	// is dropped, and who asked asks again or says so.
	maxPending int
	handle     func(data []byte, respond func([]byte) error)

	group       *lifecycle.Group
	replies     chan reply
	unsubscribe func()                 // own
	unshare     atomic.Pointer[func()] // shared
	unanswered  atomic.Int64           // requests without a reply
	draining    atomic.Bool
}

// reply to one request, ready to be sent: results come from goroutines that must not wait for NATS.
type reply struct {
	data    []byte
	respond func([]byte) error
}

// Start subscribes; where the subject is shared, in a goroutine and once the router is ready.
func (r *requests) Start(context.Context) error {
	r.unsubscribe = func() {}
	if r.own != "" {
		leave, err := r.bus.Subscribe(r.own, r.maxPending, r.handle)
		if err != nil {
			return err
		}
		r.unsubscribe = leave
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
			r.unanswered.Add(-1)
		case <-tick.C:
			if r.unshare.Load() == nil && !r.draining.Load() && r.ready() == nil {
				r.join()
			}
		}
	}
}

func (r *requests) join() {
	leave, err := r.bus.Serve(r.shared, bus.Routers, r.maxPending, r.handle)
	if err != nil {
		r.publisher.cfg.Telemetry.Log.Warn("this router does not receive requests that any router may answer", "subject", r.shared, "error", err)
		return
	}
	r.unshare.Store(&leave)
}

// Drain answers DRAINING from now on, so that callers use another router.
func (r *requests) Drain() { r.draining.Store(true) }

// Stop ends the subscriptions and waits, until ctx ends, for the replies to the requests that were
// received.
func (r *requests) Stop(ctx context.Context) error {
	r.draining.Store(true)
	r.unsubscribe()
	if leave := r.unshare.Load(); leave != nil {
		(*leave)()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.unanswered.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return r.group.Stop(ctx)
}

// beginReply returns what gathers the n results of a request and sends them once all are there.
func (r *requests) beginReply(n int, respond func([]byte) error) *pendingReply {
	r.unanswered.Add(1)
	return newPendingReply(n, func(data []byte) {
		select {
		case r.replies <- reply{data, respond}:
		default:
			r.unanswered.Add(-1)
		}
	}, func() { r.unanswered.Add(-1) })
}
