package shardlog

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// What a store answers from memory is only true while the shard is its own, and a process that hung
// finds out last that another one took it. So a lane notes when the database last answered on the
// connection that holds the locks, by the monotonic clock, and answers for as long afterwards as
// nobody can have taken them: who fences a store must have seen nothing of what its connections do,
// these among them, for 2 s (package ownership).
const confirmedFor = 1500 * time.Millisecond

// confirmPatience is how long a question waits for the database's next answer. A lane that has
// nothing to do asks every tick.
const confirmPatience = time.Second

var errUnconfirmed = code.Retry(wirev1.Code_CODE_UNAVAILABLE, unavailableRetry, "the database has not confirmed for a while that this store owns the shard")

// started is where the lanes' monotonic times begin.
var started = time.Now()

// confirm notes that the database answered a question that was asked then.
func (l *lane) confirm(asked time.Time) {
	was := l.confirmed()
	l.confirmedAt.Store(int64(asked.Sub(started)))
	if !was {
		l.mu.Lock()
		l.ownershipChanged()
		l.mu.Unlock()
	}
}

func (l *lane) confirmed() bool {
	at := l.confirmedAt.Load()
	return at != 0 && time.Since(started)-time.Duration(at) < confirmedFor
}

// sure waits until what the lane's memory says of its shards is known to be true, or they are known
// to be lost.
func (l *lane) sure(ctx context.Context) error {
	if l.confirmed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	l.wake()
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if l.confirmed() || l.state.empty() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errUnconfirmed
		}
	}
}

// Sure reports whether a shard is this store's now, as Owns does, and that no other may have taken
// it since that was found out last.
func (g *Log) Sure(ctx context.Context, shard int) error {
	if err := g.lane(shard).sure(ctx); err != nil {
		return err
	}
	return g.Owns(shard)
}

// sureOf has the lanes of topics, and with filters all lanes that can be, sure of their shards; it
// returns those that are not.
func (g *Log) sureOf(ctx context.Context, topics []string, filters bool) (unsure map[*lane]bool, err error) {
	for _, name := range topics {
		if err := g.lane(topic.Shard(name)).sure(ctx); err != nil {
			return nil, err
		}
	}
	if !filters {
		return nil, nil
	}
	for _, l := range g.lanes {
		if l.sure(ctx) != nil {
			if unsure == nil {
				unsure = map[*lane]bool{}
			}
			unsure[l] = true
		}
	}
	return unsure, nil
}
