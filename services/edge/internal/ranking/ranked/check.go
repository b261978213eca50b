package ranked

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Check returns why a Subscribe with rank_top_k is refused; nil: it is not.
func Check(m *wirev1.Subscribe, p *policy.Policy) *code.Error {
	unsupported := func(text string) *code.Error { return code.New(wirev1.Code_CODE_UNSUPPORTED, text) }
	switch {
	case m.GetGroup() != "":
		return unsupported("rank_top_k does not support groups")
	case m.GetStart() == wirev1.Start_START_AFTER_SEQ || len(m.GetPositions()) > 0:
		return unsupported("rank_top_k does not support AFTER_SEQ or positions: use a session")
	case m.GetOverflow() == wirev1.Overflow_OVERFLOW_DROP_OLDEST || m.GetOverflow() == wirev1.Overflow_OVERFLOW_CONFLATE:
		return unsupported("rank_top_k does not support the overflow policies DROP_OLDEST and CONFLATE")
	case p.Rank == nil:
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the filter's namespace has no rank policy")
	}
	return nil
}
