package score

import (
	"cmp"
	"math"
	"slices"
)

// sortContributions puts the largest first, whatever their sign.
func sortContributions(all []*Contribution) {
	slices.SortFunc(all, func(a, b *Contribution) int {
		return cmp.Or(cmp.Compare(math.Abs(b.GetValue()), math.Abs(a.GetValue())), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// contribute adds a part to an explanation where it has any.
func contribute(all []*Contribution, name string, value float64) []*Contribution {
	if value == 0 {
		return all
	}
	for _, c := range all {
		if c.GetName() == name {
			c.Value += value
			return all
		}
	}
	return append(all, &Contribution{Name: name, Value: value})
}
