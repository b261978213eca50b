package recent

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A cache has what a plain list would: those used last that together cost no more than they may.
func TestAsAListWould(t *testing.T) {
	type one struct{ key, value, cost int }
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := New[int, int](20)
		var want []one // the last used in front
		forget := func(key int) { want = slices.DeleteFunc(want, func(o one) bool { return o.key == key }) }
		for step := range 500 {
			key := r.IntN(12)
			at := slices.IndexFunc(want, func(o one) bool { return o.key == key })
			switch r.IntN(5) {
			case 0, 1:
				value, ok := c.Get(key)
				if ok != (at >= 0) || ok && value != want[at].value {
					t.Fatalf("seed %d, step %d: get %d: %d %v, want %v", seed, step, key, value, ok, want)
				}
				if ok {
					found := want[at]
					forget(key)
					want = slices.Insert(want, 0, found)
				}
			case 2, 3:
				o := one{key, step, r.IntN(24)}
				forget(key)
				gone := 0
				if o.cost <= 20 {
					sum := o.cost
					for _, w := range want {
						sum += w.cost
					}
					for ; sum > 20; gone++ {
						sum -= want[len(want)-1].cost
						want = want[:len(want)-1]
					}
					want = slices.Insert(want, 0, o)
				}
				if n, ok := c.Put(key, step, o.cost); n != gone || ok != (o.cost <= 20) {
					t.Fatalf("seed %d, step %d: put: %d %v, want %d", seed, step, n, ok, gone)
				}
			default:
				c.Remove(key)
				forget(key)
			}
			cost := 0
			for _, w := range want {
				cost += w.cost
			}
			n := 0
			for key, value := range c.All() {
				n++
				if !slices.ContainsFunc(want, func(o one) bool { return o.key == key && o.value == value }) {
					t.Fatalf("seed %d, step %d: %d is kept", seed, step, key)
				}
			}
			if c.Len() != len(want) || n != len(want) || c.Cost() != cost {
				t.Fatalf("seed %d, step %d: %d values of %d, cost %d, want %v", seed, step, c.Len(), n, c.Cost(), want)
			}
		}
	}
}
