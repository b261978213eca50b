package policy

import (
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Bounds of a rank policy.
const (
	MaxRankWindow     = 10 * time.Second
	MaxRankDeadline   = 5 * time.Second
	MaxRankCandidates = 10_000
)

// checkRank finds the faults of a rank policy that are not its scorer's, filter's or diversify's:
// those need what compiles expressions, and are a Rule (score.CheckNamespace).
func checkRank(r *pushmeshv1.RankPolicy) error {
	errs := []error{
		checkDuration("rank: window", r.GetWindow(), time.Millisecond, MaxRankWindow),
		checkDuration("rank: deadline", r.GetDeadline(), time.Millisecond, MaxRankDeadline),
		checkMost("rank: max_candidates", r.GetMaxCandidates(), MaxRankCandidates),
	}
	if _, known := pushmeshv1.RankPolicy_Rest_name[int32(r.GetRest())]; !known {
		errs = append(errs, fmt.Errorf("rank: rest %d is not known", r.GetRest()))
	}
	return errors.Join(errs...)
}
