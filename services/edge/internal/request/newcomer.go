package request

import (
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// newcomerRetry is what newcomers that are refused wait at least; over as long again they are
// spread.
const newcomerRetry = time.Second

// Newcomer checks that a Hello is taken at all: not while the edge sheds load, nor while it does
// not know which topics are durable. It would pass a backlog over, and let ACKs move a session's
// cursor past what was never delivered.
func (r *Rules) Newcomer() *code.Error {
	if why := r.overloaded(); why != nil {
		return why
	}
	if why := r.Unknown(); why != nil {
		return retrySpread(why.Code, why.Message)
	}
	return nil
}

// overloaded refuses a newcomer while the edge sheds load.
func (r *Rules) overloaded() *code.Error {
	if !r.Shedding {
		return nil
	}
	return retrySpread(wirev1.Code_CODE_OVERLOADED, "the edge is late with what it has")
}

// matchesCheaply refuses a filter with which matches could get dear: together with those that there
// are, it would have too much in common with some topic.
func (r *Rules) matchesCheaply(m *wirev1.Subscribe) *code.Error {
	if !topic.IsFilter(m.GetFilter()) || r.Fits(m.GetFilter(), m.GetGroup() != "") {
		return nil
	}
	return retrySpread(wirev1.Code_CODE_OVERLOADED, "too many filters with wildcards are mixed in the same levels here")
}

// retrySpread is a refusal of which not everybody comes back at once.
func retrySpread(c wirev1.Code, why string) *code.Error {
	after := time.Duration(rand.Uint32N(uint32(newcomerRetry.Milliseconds()))) * time.Millisecond
	return code.Retry(c, newcomerRetry+after, why)
}
