package policy

import (
	"cmp"
	"time"
)

// Defaults of rank policies.
const (
	DefaultRankWindow     = 100 * time.Millisecond
	DefaultRankDeadline   = 50 * time.Millisecond
	DefaultRankCandidates = 1000
)

// RankWindow is how long candidates gather from the first on.
func (p *Policy) RankWindow() time.Duration {
	return cmp.Or(p.Rank.GetWindow().AsDuration(), DefaultRankWindow)
}

// RankDeadline is what a ranking may take.
func (p *Policy) RankDeadline() time.Duration {
	return cmp.Or(p.Rank.GetDeadline().AsDuration(), DefaultRankDeadline)
}

// RankCandidates is the most messages of one ranking.
func (p *Policy) RankCandidates() int {
	return cmp.Or(int(p.Rank.GetMaxCandidates()), DefaultRankCandidates)
}
