package delivery

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// shedRetry is what those that are refused wait at least; over as long again they are spread.
const shedRetry = time.Second

// Shed has newcomers refused, Hello (and so sessions that resume: they keep their place) and
// Subscribe, or taken again. What there is goes on.
func (h *Hub) Shed(on bool) { h.shedding = on }

// tooLate refuses a newcomer, where that is asked for.
func (h *Hub) tooLate() *code.Error {
	if !h.shedding {
		return nil
	}
	return overloaded("the edge is late with what it has")
}

// tooTangled refuses a filter with which matches could get dear: together with those held, it would
// have too much in common with some topic.
func (h *Hub) tooTangled(m *wirev1.Subscribe) *code.Error {
	held := h.wildcards.index.Fits
	if m.GetGroup() != "" {
		held = h.groups.room.Fits
	}
	if !topic.IsFilter(m.GetFilter()) || held(m.GetFilter()) {
		return nil
	}
	return overloaded("too many filters with wildcards are mixed in the same levels here")
}

// tooSoon refuses a newcomer while the edge does not know which topics are durable: it would pass a
// backlog over, and let ACKs move a session's cursor past what was never delivered.
func (h *Hub) tooSoon() *code.Error {
	if why := h.cfg.Unknown(); why != nil {
		return spread(why.Code, why.Message)
	}
	return nil
}

func overloaded(why string) *code.Error { return spread(wirev1.Code_CODE_OVERLOADED, why) }

// spread is a refusal of which not everybody comes back at once.
func spread(c wirev1.Code, why string) *code.Error {
	after := time.Duration(rand.Uint32N(uint32(shedRetry.Milliseconds()))) * time.Millisecond
	return code.Retry(c, shedRetry+after, why)
}
