package loop

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Rates are what one client may send in a second, beside its share of the loop; a second's worth
// may come at once. Who is above is not read until it is below: its socket fills, and TCP holds it
// back. Who stays above for Patience is closed.
type Rates struct {
	Frames   int           // 0: no limit
	Bytes    int           // 0: no limit
	Patience time.Duration // 0: nobody is closed
}

// pace of a connection, where there are rates: token buckets, each the time at which it is full.
type pace struct {
	frames, bytes int64
	above         int64 // since when it has not been well below its rates; 0: it is
}

// full is when both buckets are.
func (p *pace) full(now int64) int64 { return max(p.frames, p.bytes, now) - now }

const second = int64(time.Second)

// tooFast refuses who does not become slower.
var tooFast = code.Retry(wirev1.Code_CODE_RATE_LIMITED, 5*time.Second, "the client stayed above --max-frame-rate or --max-byte-rate for longer than --rate-patience")

func (r *Rates) none() bool { return r.Frames <= 0 && r.Bytes <= 0 }

// paceOf is nil where there are no rates, which takes no memory.
func (l *Loop) paceOf(slot uint32) *pace {
	if l.cfg.Rates.none() {
		return nil
	}
	for l.paces.Len() <= int(slot) {
		l.paces.Take()
	}
	return l.paces.At(int(slot))
}

// charge counts what was read.
func (l *Loop) charge(slot uint32, frames, bytes int) {
	pc := l.paceOf(slot)
	if pc == nil {
		return
	}
	if r := l.cfg.Rates.Frames; r > 0 {
		pc.frames = max(pc.frames, l.clock.at) + int64(frames)*second/int64(r)
	}
	if r := l.cfg.Rates.Bytes; r > 0 {
		pc.bytes = max(pc.bytes, l.clock.at) + int64(bytes)*second/int64(r)
	}
}

// tooMuch reports whether the connection is above its rates. If so it is not read before the next
// tick, or closed.
func (l *Loop) tooMuch(slot uint32, p *peer) bool {
	pc := l.paceOf(slot)
	if pc == nil {
		return false
	}
	full := pc.full(l.clock.at)
	if full <= second/2 {
		pc.above = 0
	}
	if full <= second || l.hub.Unlimited(slot) {
		return false
	}
	if pc.above == 0 {
		pc.above = l.clock.at
	}
	if most := int64(l.cfg.Rates.Patience); most > 0 && l.clock.at-pc.above >= most {
		l.hub.Refuse(slot, tooFast)
		return true
	}
	l.stats.Paced++
	l.hub.Unread(slot)
	p.deferred = true
	l.paused = append(l.paused, handle{slot, p.gen})
	return true
}

// unpause is called by each tick.
func (l *Loop) unpause() {
	l.paused = l.goOnWith(l.paused)
}

// readRoom is where a connection is read to: no more of it than its bucket has in an eighth of a
// second, and no more than each may keep once what was read before takes much of --frame-memory.
func (l *Loop) readRoom() []byte {
	n := len(l.buf)
	if r := l.cfg.Rates.Bytes; r > 0 {
		n = min(n, max(r/8, kib))
	}
	if l.peers.kept > l.cfg.FrameMemory/addressParts {
		n = min(n, smallRest)
	}
	return l.buf[:n]
}
