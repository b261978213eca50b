package delivery

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
)

// Late says that the loop is, or was until now, so late (linkhealth.TooLate) that what clients and
// the kernel measure may be the edge's doing.
func (h *Hub) Late() {
	h.lateAt = h.now
	h.cfg.Gate.Late(h.now)
}

// onTheWay is how long before a heartbeat's Ping is read the edge may have kept it waiting: TCP may
// have brought it while the loop did not turn.
const onTheWay = int64(time.Second)

// heartbeat judges the link by what a Ping brings: the client's report, in microseconds, of the
// Ping before, 0 for none, and what the kernel knows. A heartbeat through which the edge was late,
// or had more to send than its answer, tells of the edge instead and does not count.
func (h *Hub) heartbeat(c *conn, reported uint32) {
	if h.cfg.Unhealthy == linkhealth.Off || c.state != stateOpen || c.draining {
		return
	}
	path := h.cfg.Path(c.slot)
	queued := c.out.Messages() > 0 || path.Unsent > 0
	if before := c.link.Queued(queued); queued || before {
		h.stats.RTTQueued++
		return
	}
	if h.lateAt != 0 && h.now-h.lateAt <= int64(c.heartbeat)*int64(time.Millisecond)+onTheWay {
		h.stats.RTTLate++
		return
	}
	sample, v := h.links.Judge(&c.link, reported, path.RTT)
	if v == linkhealth.Unknown {
		return
	}
	h.stats.RTT.Add(sample)
	if v == linkhealth.Turned {
		h.stats.UnhealthyTimes++
		h.cfg.Gate.Turned(h.now)
	}
	if !v.Unhealthy() {
		return
	}
	if why := h.spares(); why != linkhealth.None {
		h.stats.Spared[why]++
		return
	}
	h.fail(c, wirev1.Code_CODE_UNHEALTHY, "three round trips in a row were far beyond those before")
}

// spares says why an unhealthy connection is not closed.
func (h *Hub) spares() linkhealth.Reason {
	if h.cfg.Unhealthy != linkhealth.Close {
		return linkhealth.Reported
	}
	return h.cfg.Gate.Close(h.now)
}
