package compute

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/pushmesh/pushmesh/internal/vector"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// The best dotBest of dotRows candidates for each of dotProfiles.
const (
	dotRows, dotProfiles, dotDim, dotBest = 10_000, 1_000, 128, 100
	dotGoal                               = 40 // % of C
)

// Ways in which the loop in C is compiled: with -ffast-math alone it may add in any order, and so
// with vectors; -O3 keeps the order that is written.
const (
	plainC = "-O3 -march=native"
	fastC  = "-O3 -march=native -ffast-math"
)

// dot has every profile meet every candidate, in turns with the same loop in C.
func (b *bench) dot(ctx context.Context) (err error) {
	defer try.Catch(&err)
	programs, missing := b.compile(ctx, "topk", plainC, fastC)
	r := rand.New(rand.NewPCG(1, 2))
	rows, profiles := vectors(r, dotRows*dotDim), vectors(r, dotProfiles*dotDim)
	var ours []float64
	theirs := map[string][]float64{}
	for range b.Rounds {
		v := try.Get(perSecond(b.Span, dotRows*dotProfiles, func() error {
			_, err := vector.TopK(rows, dotDim, profiles, dotBest)
			return err
		}))
		ours = append(ours, v/1e6)
		for _, p := range programs {
			v := try.Get(p.dots(ctx))
			theirs[p.name] = append(theirs[p.name], v)
		}
	}
	what := fmt.Sprintf("best %d of %d × %d dimensions, %d profiles", dotBest, dotRows, dotDim, dotProfiles)
	best, refs := 0.0, []string{missing}
	var ratios []float64
	for _, p := range programs {
		v := theirs[p.name]
		refs = append(refs, fmt.Sprintf("%s %.1f (%s)", p.name, table.Median(v), table.Spread(v)))
		if m := table.Median(v); m > best {
			best, ratios = m, table.Ratios(ours, v)
		}
	}
	b.Add(table.Figure(what, table.Median(ours), "M dots/s/core", "rounds "+table.Spread(ours)))
	if len(ratios) == 0 {
		b.Add(table.Failed(what+", of C", "%", fmt.Errorf("nothing to compare with: %s", missing)))
		return nil
	}
	b.Add(table.AtLeast(what+", of the quickest C", 100*table.Median(ratios), "%", dotGoal,
		fmt.Sprintf("rounds %s of 1; %s", table.Spread(ratios), strings.TrimPrefix(strings.Join(refs, ", "), ", "))))
	return nil
}

// dots is the median of a few rounds of one run of the C program, in millions a second.
func (v variant) dots(ctx context.Context) (_ float64, err error) {
	defer try.Catch(&err)
	const rounds = 3
	lines := try.Get(v.lines(ctx, fmt.Sprint(dotRows), fmt.Sprint(dotProfiles), fmt.Sprint(dotDim), fmt.Sprint(dotBest), fmt.Sprint(rounds)))
	var all []float64
	for _, line := range lines {
		n := try.Get(numberAt(line, 0))
		all = append(all, n)
	}
	if len(all) != rounds {
		return 0, fmt.Errorf("%s: %d rounds, not %d", v.name, len(all), rounds)
	}
	return table.Median(all), nil
}

func vectors(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}
