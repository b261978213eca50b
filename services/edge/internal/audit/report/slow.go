package report

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	// SlowEvery is how often one connection is reported at most, but for a higher level.
	SlowEvery = 10 * time.Second
	// SlowMost is how many connections are reported in that time.
	SlowMost = 1024
)

// slowReport is of a connection that was reported lately.
type slowReport struct {
	gen     uint32
	percent uint8
	until   int64
}

// Slow reports that a connection's queue has reached so many per cent of its bound, unless it or
// too many others were reported a moment ago.
func (r *Reporter) Slow(c exchange.Conn, now int64, percent int, messages, bytes uint64) {
	if !r.Wants(events.SlowConsumer) {
		return
	}
	last, known := r.slow[c.Slot]
	if known && last.gen == c.Gen && int(last.percent) >= percent && now < last.until || !known && len(r.slow) >= SlowMost {
		r.suppressed++
		return
	}
	if r.slow == nil {
		r.slow = map[uint32]slowReport{}
	}
	r.slow[c.Slot] = slowReport{c.Gen, uint8(percent), now + int64(SlowEvery)}
	r.put(c, &eventring.Record{Kind: events.SlowConsumer, Code: int32(percent), Epoch: messages, Seq: bytes})
}

// Suppressed is how many reports of slow connections were not made, because the same or too many
// others were made a moment before.
func (r *Reporter) Suppressed() uint64 { return r.suppressed }

// ForgetSlow forgets reports of a while ago. It is called every second.
func (r *Reporter) ForgetSlow(now int64) {
	for slot, last := range r.slow {
		if now >= last.until {
			delete(r.slow, slot)
		}
	}
}
