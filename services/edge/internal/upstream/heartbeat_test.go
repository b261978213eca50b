package upstream

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// A digest is due once a second, and says how the edge ends. The clock waits for it unless
// something waits for the clock.
func TestHeartbeat(t *testing.T) {
	var h heartbeat
	begin := time.Unix(1000, 0)
	if !h.digestDue(begin) || h.digestDue(begin.Add(digestEvery-1)) || !h.digestDue(begin.Add(digestEvery)) {
		t.Error("a digest is not due once a second")
	}
	h.ticked = begin
	if got := h.clockDue(true); !got.Equal(begin.Add(tick)) {
		t.Errorf("something waits: the clock is due after %v", got.Sub(begin))
	}
	if got := h.clockDue(false); !got.Equal(begin.Add(2 * digestEvery)) {
		t.Errorf("nothing waits: the clock is due after %v", got.Sub(begin))
	}
	d := &meshv1.EdgeDigest{}
	if h.describe(d); d.GetDraining() || d.GetLeaving() {
		t.Errorf("an edge that stays says %v", d)
	}
	h.draining = true
	if h.describe(d); !d.GetDraining() || d.GetLeaving() {
		t.Errorf("an edge that drains says %v", d)
	}
}

// Loops are told of the kinds that routers or policies want, once for each change; others learn of
// them after that.
func TestEventKinds(t *testing.T) {
	var k eventKinds
	if want, changed := k.update(); want != 0 || changed {
		t.Errorf("nobody wants anything: %v, changed: %v", want, changed)
	}
	k.routers, k.policies = 1, 2
	if want, changed := k.update(); want != 3 || !changed {
		t.Errorf("1 and 2 are wanted: %v, changed: %v", want, changed)
	}
	if got := k.published.Load(); got != 0 {
		t.Errorf("%v before loops were told", got)
	}
	k.publish()
	if want, changed := k.update(); changed || events.Mask(k.published.Load()) != want {
		t.Errorf("nothing changed: %v, published %v", want, k.published.Load())
	}
}
