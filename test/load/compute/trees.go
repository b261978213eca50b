package compute

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/trees"
	"github.com/pushmesh/pushmesh/internal/trees/treesgen"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	forestTrees, forestLeaves, forestColumns, forestRows = 500, 31, 41, 2000
	// millions of traversals a second of a core
	treesGoal = 20
)

// trees scores rows with a generated model, in turns with the best there is in C for the same one.
func (b *bench) trees(ctx context.Context) (err error) {
	defer try.Catch(&err)
	forest := treesgen.New(forestTrees, forestLeaves, forestColumns, 1)
	m := try.Get(trees.Parse(forest.LightGBM(), trees.Limits{}))
	rows := treesgen.Rows(forestRows, forestColumns, 0.05, 1)
	file := filepath.Join(string(b.Dir), "forest")
	try.Do(os.WriteFile(file, forest.Flat(rows), 0o600))
	programs, missing := b.compile(ctx, "trees", plainC)
	out := make([]float64, forestRows)
	var ours []float64
	theirs := map[string][]float64{}
	for range b.Rounds {
		v := try.Get(perSecond(b.Span, forestRows*forestTrees, func() error { m.RawBatch(rows, out); return nil }))
		ours = append(ours, v/1e6)
		for _, p := range programs {
			try.Do(p.walks(ctx, file, b.Span.Seconds(), total(out), theirs))
		}
	}
	what := fmt.Sprintf("%d trees × %d leaves × %d columns", forestTrees, forestLeaves, forestColumns)
	refs := []string{"rounds " + table.Spread(ours)}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		refs = append(refs, fmt.Sprintf("%s %.1f", name, table.Median(theirs[name])))
	}
	if missing != "" {
		refs = append(refs, missing)
	}
	b.Add(table.AtLeast(what+", traversals", table.Median(ours), "M/s/core", treesGoal, strings.Join(refs, ", ")))
	return nil
}

// walks runs the C program, which must come to the same scores, and notes how quick each of its
// ways is.
func (v variant) walks(ctx context.Context, file string, seconds, want float64, into map[string][]float64) (err error) {
	defer try.Catch(&err)
	lines := try.Get(v.lines(ctx, file, fmt.Sprint(seconds)))
	for _, line := range lines {
		rate := try.Get(numberAt(line, 1))
		sum := try.Get(numberAt(line, 2))
		if math.Abs(sum-want) > 1e-9*math.Abs(want) {
			return fmt.Errorf("%s, %s: the scores sum up to %v, ours to %v", v.name, line[0], sum, want)
		}
		name := v.name + " " + line[0]
		into[name] = append(into[name], rate)
	}
	return nil
}

func total(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum
}
