package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Bounds of a rank policy.
const (
	MaxRankWindow     = 10 * time.Second
	MaxRankDeadline   = 5 * time.Second
	MaxRankCandidates = 10_000
)

// checkRank finds every fault of a rank policy. Whether there is the model that it names is not
// looked at.
func checkRank(r *pushmeshv1.RankPolicy) error {
	errs := []error{
		checkDuration("rank: window", r.GetWindow(), time.Millisecond, MaxRankWindow),
		checkDuration("rank: deadline", r.GetDeadline(), time.Millisecond, MaxRankDeadline),
		checkMost("rank: max_candidates", r.GetMaxCandidates(), MaxRankCandidates),
	}
	if _, known := pushmeshv1.RankPolicy_Rest_name[int32(r.GetRest())]; !known {
		errs = append(errs, fmt.Errorf("rank: rest %d is not known", r.GetRest()))
	}
	if err := score.Check(r); err != nil {
		errs = append(errs, fmt.Errorf("rank: %s", withoutCode(err)))
	}
	return errors.Join(errs...)
}

// withoutCode is what is wrong without the code, which whoever refuses the policy gives.
func withoutCode(err error) string {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return code.From(err).Message
	}
	var all []string
	for _, e := range several.Unwrap() {
		all = append(all, code.From(e).Message)
	}
	return strings.Join(all, "; ")
}
