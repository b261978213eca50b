// Package crowd does something for very many connections, off the event loops, so many at a time,
// each in a goroutine that waits most of the time. Others wait in a line of their address.
// Addresses take turns, and where all places are taken the address that has most of them gives one
// up: who asks for very much waits for itself.
package crowd

import (
	"context"
	"sync"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// Config of a Crowd.
type Config[T any] struct {
	// Name of the goroutines.
	Name string
	// Do does what is to be done for one.
	Do func(ctx context.Context, one T)
	// GaveWay is told of one that waited, and will not be done. It must not call the crowd.
	GaveWay func(one T)
	// UnderWay is how many are done at a time, Waiting how many wait for that. 0: 1,024 and 4,096.
	UnderWay, Waiting int
}

// Crowd is a lifecycle.Part. It owns a goroutine for each that is under way.
type Crowd[T any] struct {
	cfg   Config[T]
	group *lifecycle.Group

	mu    sync.Mutex
	under int
	lines lines[T]
	gave  uint64
}

// New makes a crowd. It takes others from Start on.
func New[T any](cfg Config[T]) *Crowd[T] {
	if cfg.UnderWay == 0 {
		cfg.UnderWay = 1024
	}
	if cfg.Waiting == 0 {
		cfg.Waiting = 4096
	}
	return &Crowd[T]{cfg: cfg, lines: newLines[T]()}
}

// Start implements lifecycle.Part.
func (c *Crowd[T]) Start(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group = lifecycle.NewGroup(context.Background())
	return nil
}

// Stop implements lifecycle.Part: what is not done yet never will be.
func (c *Crowd[T]) Stop(ctx context.Context) error {
	c.mu.Lock()
	group := c.group
	c.group, c.lines = nil, newLines[T]()
	c.mu.Unlock()
	if group == nil {
		return nil
	}
	return group.Stop(ctx)
}

// Stats of a crowd.
type Stats struct {
	UnderWay, Waiting int
	GaveWay           uint64 // that were not taken, or not done, because too many waited
}

// Stats may be called at any time.
func (c *Crowd[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{UnderWay: c.under, Waiting: c.lines.n, GaveWay: c.gave}
}

// Entry is what became of one that enters.
type Entry uint8

// What may become of it.
const (
	Taken   Entry = iota // Do, or GaveWay, will be called with it
	Full                 // there is no room for it
	Stopped              // the crowd has not begun, or has ended
)

// Enter has something done, in its turn, for an address; it does not wait.
func (c *Crowd[T]) Enter(from string, one T) Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.group == nil:
		return Stopped
	case c.under < c.cfg.UnderWay:
		c.begin(one)
		return Taken
	}
	if c.lines.n >= c.cfg.Waiting {
		c.gave++
		other, ok := c.lines.giveWay(from)
		if !ok {
			return Full
		}
		c.cfg.GaveWay(other)
	}
	c.lines.push(from, one)
	return Taken
}

// begin does one in a goroutine, and after it those that wait, one after the other. The lock is
// held.
func (c *Crowd[T]) begin(one T) {
	c.under++
	c.group.Go(c.cfg.Name, func(ctx context.Context) {
		for ok := true; ok; one, ok = c.next() {
			c.cfg.Do(ctx, one)
		}
	})
}

// next is the next one; false: none waits, and the goroutine ends.
func (c *Crowd[T]) next() (one T, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok = c.lines.pop(); !ok {
		c.under--
	}
	return one, ok
}
