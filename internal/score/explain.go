package score

import (
	"cmp"
	"math"
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// sortContributions puts the largest first, whatever their sign.
func sortContributions(all []*pushmeshv1.RankResponse_Contribution) {
	slices.SortFunc(all, func(a, b *pushmeshv1.RankResponse_Contribution) int {
		return cmp.Or(cmp.Compare(math.Abs(b.GetValue()), math.Abs(a.GetValue())), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// contribute adds a part to an explanation where it has any.
func contribute(all []*pushmeshv1.RankResponse_Contribution, name string, value float64) []*pushmeshv1.RankResponse_Contribution {
	if value == 0 {
		return all
	}
	for _, c := range all {
		if c.GetName() == name {
			c.Value += value
			return all
		}
	}
	return append(all, &pushmeshv1.RankResponse_Contribution{Name: name, Value: value})
}
