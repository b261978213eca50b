package compute

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// features that a candidate has, by name: those that the scorers look at, and some more.
var features = []string{"quality", "likes", "length", "reports", "views", "shares", "author_rank", "saves"}

// candidates of a feed: features, a language, a topic, an age of up to a day.
func candidates(n int, now time.Time) []*pushmeshv1.Candidate {
	r := rand.New(rand.NewPCG(3, 4))
	all := make([]*pushmeshv1.Candidate, n)
	for i := range all {
		c := &pushmeshv1.Candidate{
			Id: fmt.Sprintf("item-%d", i), Features: map[string]float64{}, Priority: uint32(r.IntN(10)), Topic: fmt.Sprintf("feed/%d", r.IntN(200)),
			PublishedAt: timestamppb.New(now.Add(-time.Duration(r.Float64() * float64(24*time.Hour)))), Headers: map[string]string{"lang": []string{"en", "de", "fr"}[r.IntN(3)]},
		}
		for _, name := range features {
			c.Features[name] = r.Float64()
		}
		all[i] = c
	}
	return all
}

// profile is who they are ranked for.
func profile(n int) map[string]float64 {
	return map[string]float64{"likes": 0.1 + 0.001*float64(n%800), "length": 0.3, "quality": 0.7}
}

const (
	// usualExpression looks at what an expression usually does.
	usualExpression = `(features.quality * 2.0 + features.likes * profile.likes + features.shares * 0.5) / (1.0 + age / 3600.0) - features.reports`
	usualFilter     = `features.reports < 0.9 && headers.lang != "fr"`
)

func weightedScorer() *pushmeshv1.WeightedScorer {
	return &pushmeshv1.WeightedScorer{
		Weights: map[string]float64{"quality": 2, "shares": 0.5, "reports": -1}, Affinities: map[string]float64{"likes": 1}, PriorityWeight: 0.1, HalfLife: hours(6),
	}
}
