package candidates

import (
	"strconv"
	"testing"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/internal/score"
)

// A first candidate with far more features than any other must not make room for as many of each: a
// request of a few MiB would take more memory than there is.
func TestPackingTakesNoMoreRoomThanThereAreValues(t *testing.T) {
	all := make([]score.Candidate, 1000)
	all[0].Features.Map = map[string]float64{}
	for i := range 1000 {
		all[0].Features.Map[strconv.Itoa(i)] = 1
	}
	all[1].Features.Pairs = []expr.Pair[float64]{{Name: "a", Value: 2}}
	for _, names := range [][]string{nil, {"1", "2"}} {
		_, values := packTables(&sets{of: map[string]uint32{}}, all, names, func(c *score.Candidate) *expr.Table[float64] { return &c.Features })
		if cap(values) > 2000 {
			t.Errorf("of %v: room for %d values, there are %d", names, cap(values), len(values))
		}
	}
}
