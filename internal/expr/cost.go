package expr

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// traversed charges what cel-go takes for a single step though it walks over, or copies, all of a
// text or a tree of the payload: without it `payload.tags.map(t, bytes(payload.s))` fills the
// memory within its limit.
type traversed struct{}

// short texts cost what cel-go says.
const short = 64

// wholeValue is charged for comparing two lists or maps of any size: MaxValues of a payload are
// compared in as long as some thousand steps take.
const wholeValue = 1000

// CallCost implements cost.ActualCostEstimator; nil leaves it to cel-go.
func (traversed) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	if function == overloads.Matches {
		return nil // by text and pattern
	}
	bytes, trees := length(result), 0
	for _, a := range args {
		bytes += length(a)
		switch a.(type) {
		case traits.Lister, traits.Mapper:
			trees++
		}
	}
	var charged uint64
	switch function {
	case operators.Equals, operators.NotEquals, operators.In:
		if trees == 2 {
			charged = wholeValue
		}
	}
	if bytes > short {
		charged += uint64(bytes)/10 + 1
	}
	if charged == 0 {
		return nil
	}
	return &charged
}

func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}
