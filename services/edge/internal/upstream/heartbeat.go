package upstream

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// The paces of the mesh's own clock: tick while something waits for it, with the digest else.
const (
	digestEvery = time.Second
	tick        = 100 * time.Millisecond
)

// heartbeat is when the mesh sends its digest and looks at its clock, and what a digest says of its
// end. The mesh's goroutine owns it.
type heartbeat struct {
	nextDigest        time.Time
	ticked            time.Time // when the clock was looked at last
	draining, leaving bool
}

// digestDue reports whether a digest is due, and if so sets when the next one is.
func (h *heartbeat) digestDue(now time.Time) bool {
	if now.Before(h.nextDigest) {
		return false
	}
	h.nextDigest = now.Add(digestEvery)
	return true
}

// clockDue is when the clock is to be looked at, which is sooner where something waits for it.
func (h *heartbeat) clockDue(waits bool) time.Time {
	if waits {
		return h.ticked.Add(tick)
	}
	return h.nextDigest
}

// describe fills in what a digest says of the edge's end.
func (h *heartbeat) describe(d *meshv1.EdgeDigest) { d.Draining, d.Leaving = h.draining, h.leaving }
