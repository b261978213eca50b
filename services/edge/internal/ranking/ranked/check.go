package ranked

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Check finds what speaks against a Subscribe with rank_top_k.
func Check(m *wirev1.Subscribe, p *policy.Policy) *code.Error {
	unsupported := func(text string) *code.Error { return code.New(wirev1.Code_CODE_UNSUPPORTED, text) }
	switch {
	case m.GetGroup() != "":
		return unsupported("a group is not ranked")
	case m.GetStart() == wirev1.Start_START_AFTER_SEQ || len(m.GetPositions()) > 0:
		return unsupported("what is ranked comes in no order to go on from: a session can")
	case m.GetOverflow() == wirev1.Overflow_OVERFLOW_DROP_OLDEST || m.GetOverflow() == wirev1.Overflow_OVERFLOW_CONFLATE:
		return unsupported("what is ranked has no oldest or newest to be dropped or kept")
	case p.Rank == nil:
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the filter's namespace has no rank policy")
	}
	return nil
}
