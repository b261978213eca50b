package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
)

// Depths by which connections are counted: bytes owed at least, kernel memory of stuck ones
// included.
var Depths = [...]int{1, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

// depths fills in how much connections owe.
func (h *Hub) depths(s *Stats) {
	s.Owing[0] = int64(h.outboxes.Taken())
	for class := range h.debts.counts {
		if n := h.debts.counts[class]; n > 0 {
			for i := 1; i < len(Depths); i++ {
				if h.debts.least(class+1) > Depths[i] {
					s.Owing[i] += int64(n)
				}
			}
		}
	}
	if o := h.debts.most(); o != nil {
		s.Deepest = int64(o.held)
	}
}

// levels of a queue's depth that are told of, in per cent of its bound. One is told of again once
// the queue was below half of it.
var levels = [...]int{50, 80}

const (
	// warnEvery is how often one connection is told of at most, but for a higher level.
	warnEvery = 10 * time.Second
	// warnedMost is how many connections are told of in that time.
	warnedMost = 1024
)

// warned is a connection that was told of.
type warned struct {
	gen   uint32
	level uint8
	until int64
}

// depth of a queue, in per cent of its bound.
func (h *Hub) depth(o *outbox) int {
	return max(o.bytes*100/h.lim.QueueBytes, int(o.msgs)*100/h.lim.QueueMessages)
}

// deepens tells of a connection whose socket is stuck and whose queue has reached another level.
// One that keeps up, however much it is sent at once, is not told of.
func (h *Hub) deepens(c *conn) {
	o, depth := c.out, h.depth(c.out)
	for o.level > 0 && depth < levels[o.level-1]/2 {
		o.level--
	}
	before := o.level
	for int(o.level) < len(levels) && depth >= levels[o.level] {
		o.level++
	}
	if o.level > before && h.rooms.report.Wants(events.SlowConsumer) {
		h.warn(c)
	}
}

// warn tells of the level that a connection has reached, unless it or too many others were told of
// a moment ago.
func (h *Hub) warn(c *conn) {
	w, known := h.warned[c.slot]
	if known && w.gen == c.gen && w.level >= c.out.level && h.now < w.until {
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
	h.warned[c.slot] = warned{c.gen, c.out.level, h.now + int64(warnEvery)}
	h.tellSlow(c, levels[c.out.level-1])
}

// forgetWarned forgets those that were told of a while ago.
func (h *Hub) forgetWarned() {
	for slot, w := range h.warned {
		if h.now >= w.until {
			delete(h.warned, slot)
		}
	}
}
