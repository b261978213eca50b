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

	// full has room for one: something waits here, and drainOutlets must look after it.
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

// drainOutlets offers again what loops had no room for. It sleeps while nothing waits: an idle edge
// has no use for 500 looks a second.
func (m *Mesh) drainOutlets(ctx context.Context) {
	const again = 2 * time.Millisecond
	later := time.NewTimer(0)
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.full:
		case <-later.C:
		}
		more := false
		for _, o := range m.loops {
			more = o.retry() || more
		}
		if more {
			later.Reset(again)
		}
	}
}
