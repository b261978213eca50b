package mesh

import (
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// outlet is the way to one loop. What is no Live and finds the mailbox full waits here, in order: answers are bounded by what
// the loop itself asked for, so this is too.
type outlet struct {
	loop exchange.Loop

	mu      sync.Mutex
	backlog []exchange.Event
}

func (o *outlet) post(e exchange.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.backlog) > 0 || !o.loop.Post(e) {
		o.backlog = append(o.backlog, e)
	}
}

// live posts a run; false where there is no room, or where answers wait that must not be overtaken.
func (o *outlet) live(run []*exchange.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.backlog) == 0 && o.loop.Post(exchange.Live{Messages: run})
}

func (o *outlet) retry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.backlog) > 0 && o.loop.Post(o.backlog[0]) {
		o.backlog[0] = nil
		o.backlog = o.backlog[1:]
	}
	if len(o.backlog) == 0 {
		o.backlog = nil
	}
}

// drainOutlets offers again what loops had no room for.
func (m *Mesh) drainOutlets(ctx context.Context) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, o := range m.loops {
				o.retry()
			}
		}
	}
}
