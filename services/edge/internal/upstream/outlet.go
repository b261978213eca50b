package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// outlet is the way to one loop. What is no Live and finds the mailbox full waits here, in order:
// answers are bounded by what the loop itself asked for, so this is too.
type outlet struct {
	loop exchange.Loop

	// full has room for one: something waits here, and outlets.drain must look after it.
	full chan<- struct{}

	mu      sync.Mutex
	backlog []exchange.Event
}

func (o *outlet) post(e exchange.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.backlog) > 0 || !o.loop.Post(e) {
		o.backlog = append(o.backlog, e)
		select {
		case o.full <- struct{}{}:
		default:
		}
	}
}

// live posts a run; false where there is no room, or where answers wait that must not be overtaken.
func (o *outlet) live(run []*exchange.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.backlog) == 0 && o.loop.Post(exchange.Live{Messages: run})
}

// retry reports whether something still waits.
func (o *outlet) retry() (more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.backlog) > 0 && o.loop.Post(o.backlog[0]) {
		o.backlog[0] = nil
		o.backlog = o.backlog[1:]
	}
	if len(o.backlog) == 0 {
		o.backlog = nil
	}
	return len(o.backlog) > 0
}

// outlets are the ways to all loops, that of the groups last. It is safe for concurrent use once
// every loop was added.
type outlets struct {
	all  []*outlet
	full chan struct{} // an outlet has a backlog
}

func newOutlets() outlets { return outlets{full: make(chan struct{}, 1)} }

func (o *outlets) add(l exchange.Loop) {
	o.all = append(o.all, &outlet{loop: l, full: o.full})
}

// withConnections are the loops but for the groups'.
func (o *outlets) withConnections() []*outlet { return o.all[:len(o.all)-1] }

// post hands an event that is no Live to a loop, if need be once it has room.
func (o *outlets) post(loop uint16, e exchange.Event) {
	if int(loop) < len(o.all) {
		o.all[loop].post(e)
	}
}

// live posts a run to a loop; false where it has no room.
func (o *outlets) live(loop int, run []*exchange.Message) bool { return o.all[loop].live(run) }

// drain offers again what loops had no room for. It sleeps while nothing waits: an idle edge has no
// use for 500 looks a second.
func (o *outlets) drain(ctx context.Context) {
	const again = 2 * time.Millisecond
	later := time.NewTimer(0)
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.full:
		case <-later.C:
		}
		more := false
		for _, one := range o.all {
			more = one.retry() || more
		}
		if more {
			later.Reset(again)
		}
	}
}
