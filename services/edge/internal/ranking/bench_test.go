package ranking

import (
	"fmt"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// A ranking of 100 messages for 1,000 members here, by weights and by what each member likes.
func BenchmarkRanking(b *testing.B) {
	prices := make([]float64, 100)
	for i := range prices {
		prices[i] = float64(i * 7 % 100)
	}
	weights := map[string]float64{"price": 1}
	for name, p := range map[string]*pushmeshv1.RankPolicy{
		"all alike": {Weighted: &pushmeshv1.WeightedScorer{Weights: weights}}, "each": {Weighted: &pushmeshv1.WeightedScorer{Affinities: weights}},
	} {
		b.Run(name, func(b *testing.B) {
			r, l := start(b, nil)
			asked := &exchange.Ranking{Policy: ranks(p, long), Messages: priced(b, prices...), Members: everybody(1000)}
			for i := range asked.Members {
				asked.Members[i].TopK = 10
				asked.Members[i].Profile = &exchange.Profile{Features: map[string]float64{"price": float64(i + 1), fmt.Sprint(i): 1}}
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Rank(asked)
				if got := l.ranked(b); got.Err != nil {
					b.Fatal(got.Err)
				}
			}
		})
	}
}
