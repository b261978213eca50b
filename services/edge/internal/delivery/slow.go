package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
)

// QueueSizes are the sizes by which queues are counted: bytes at least, kernel memory of stalled
// sockets included.
var QueueSizes = [...]int{1, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// queueSizes fills in how large queues are.
func (h *Hub) queueSizes(s *Stats) {
	s.QueuesBySize[0] = int64(h.queues.InUse())
	h.queues.AtLeast(QueueSizes[1:], s.QueuesBySize[1:])
	if _, held, ok := h.queues.Largest(); ok {
		s.LargestQueue = int64(held)
	}
}

const (
	// warnEvery is how often one connection is told of at most, but for a higher level.
	warnEvery = 10 * time.Second
	// warnedMost is how many connections are told of in that time.
	warnedMost = 1024
)

// warned is a connection that was told of.
type warned struct {
	gen   uint32
	level uint8 // per cent
	until int64
}

// warnSlow tells of a connection whose socket is stalled and whose queue has reached another level,
// unless it or too many others were told of a moment ago. One that keeps up, however much it is
// sent at once, is not told of.
func (h *Hub) warnSlow(c *conn) {
	level, raised := c.out.Level()
	if !raised || !h.rooms.report.Wants(events.SlowConsumer) {
		return
	}
	w, known := h.warned[c.slot]
	if known && w.gen == c.gen && int(w.level) >= level && h.now < w.until {
		h.stats.HeldBack++
		return
	}
	if !known && len(h.warned) >= warnedMost {
		h.stats.HeldBack++
		return
	}
	if h.warned == nil {
		h.warned = map[uint32]warned{}
	}
	h.warned[c.slot] = warned{c.gen, uint8(level), h.now + int64(warnEvery)}
	h.tellSlow(c, level)
}

// forgetWarned forgets those that were told of a while ago.
func (h *Hub) forgetWarned() {
	for slot, w := range h.warned {
		if h.now >= w.until {
			delete(h.warned, slot)
		}
	}
}
