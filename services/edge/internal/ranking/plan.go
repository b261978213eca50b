package ranking

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a part of a ranking, which is a job of its own.
const (
	partMembers = 1000
	// partCost of what is shipped, in steps of score.Unit: 25 ms of a worker, so that several share
	// a large ranking.
	partCost = 1_000_000
	// partPairs of a message and a member that a model scores: what that costs is not known here,
	// some microseconds each.
	partPairs = 20_000
)

// plan says where a ranking is scored, and in which parts.
type plan struct {
	parts []part
	ship  bool
	cost  int // where it is scored here
}

var errNoCompute = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "models are scored by compute nodes, and this edge has none (--computes)")

// plan of a ranking that was prepared and is not empty.
func (k *ranking) plan() (plan, error) {
	n, members, shippable := len(k.candidates), len(k.distinct), k.r.cfg.Compute != nil
	size := min(partMembers, max(score.MaxPairs/n, 1))
	if k.scoring.spec == nil {
		if !shippable {
			return plan{}, errNoCompute
		}
		size = min(size, max(partPairs/n, 1))
		return plan{parts: cut(members, size), ship: true}, nil
	}
	once := k.scoring.spec.Cost(k.candidates, 0)
	each := k.scoring.spec.Cost(k.candidates, 1) - once
	work := once + each*members
	if shippable && (work > maxCost || k.r.cfg.Compute.Worthwhile(time.Duration(work)*score.Unit, k.encoded)) {
		size = min(size, max((partCost-once)/max(each, 1), 1))
		return plan{parts: cut(members, size), ship: true}, nil
	}
	return plan{parts: cut(members, size), cost: work}, nil
}

// cut so many members into parts.
func cut(members, size int) []part {
	parts := make([]part, 0, (members+size-1)/size)
	for from := 0; from < members; from += size {
		parts = append(parts, part{from, min(from+size, members)})
	}
	return parts
}
