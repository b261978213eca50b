// Package meshtime tells processes that ask no database what time it is by the database, which
// stores say in their beats. What ends at a time, such as a message with a TTL, is begun on one
// machine and judged on others: by their own clocks, a machine whose clock is wrong would end what
// is good.
package meshtime

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// span is for how long beats are compared. One that comes late says too early a time, so the
	// latest time of them counts; and a process that stood still reads old beats first, for much
	// less than this.
	span = 3 * time.Second
	// limit is how far this machine's clock may be apart from the database's before people are
	// told.
	limit = 10 * time.Second
	// pending beats may wait to be read.
	pending = 1024
)

// Bus is what a Clock needs of NATS (bus.Bus).
type Bus interface {
	Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error)
}

// Clock is a lifecycle.Part, safe for concurrent use. Between beats it goes on by the monotonic
// clock; before the first one it is this machine's.
type Clock struct {
	bus         Bus
	began       time.Time // where monotonic times begin
	unsubscribe func()

	// offset is the database's time less the monotonic one, in microseconds; 0: it is not known.
	offset atomic.Int64

	mu     sync.Mutex
	since  time.Time // when the first of the beats came that are compared; zero: none did
	latest int64     // the most of them, as offset
}

// New makes a clock. The bus must be started before it.
func New(b Bus) *Clock { return &Clock{bus: b, began: time.Now()} }

// Start begins to listen.
func (c *Clock) Start(context.Context) error {
	unsubscribe, err := c.bus.Subscribe(bus.StoreBeat, pending, func(data []byte, _ func([]byte) error) {
		b := &meshv1.StoreBeat{}
		if proto.Unmarshal(data, b) == nil && b.GetTime() > 0 {
			c.observe(time.Now(), b.GetTime())
		}
	})
	c.unsubscribe = unsubscribe
	return err
}

// Stop ends that.
func (c *Clock) Stop(context.Context) error {
	c.unsubscribe()
	return nil
}

// observe takes the database's time from a beat, in Unix microseconds.
func (c *Clock) observe(now time.Time, said uint64) {
	offset := int64(said) - now.Sub(c.began).Microseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.offset.Load() == 0 {
		c.offset.Store(offset)
	}
	if c.since.IsZero() {
		c.since, c.latest = now, offset
		return
	}
	if c.latest = max(c.latest, offset); now.Sub(c.since) >= span {
		c.offset.Store(c.latest)
		c.since = time.Time{}
	}
}

// At is the database's time at a time of this process's, which must have a monotonic reading.
func (c *Clock) At(now time.Time) time.Time {
	if offset := c.offset.Load(); offset != 0 {
		return time.UnixMicro(offset + now.Sub(c.began).Microseconds())
	}
	return now
}

// Check is a health check: nil while this machine's clock is near the database's.
func (c *Clock) Check() error {
	now := time.Now()
	if apart := now.Round(0).Sub(c.At(now)).Round(time.Second); apart.Abs() > limit {
		return fmt.Errorf("this machine's clock is %v apart from the database's, by which messages expire: run a time service (chrony, systemd-timesyncd)", apart)
	}
	return nil
}
