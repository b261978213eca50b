package expr

import (
	"math"

	"cel.dev/cel-go/common/operators"
)

// equal compares values of one type, or one of the payload's with any: of another type it is
// different.
func equal(a, b code) (code, bool) {
	if a.json == nil && b.json != nil {
		a, b = b, a
	}
	switch {
	case a.number != nil && b.number != nil:
		return code{bool: same(a.number, b.number)}, true
	case a.int != nil && b.int != nil:
		return code{bool: same(a.int, b.int)}, true
	case a.bool != nil && b.bool != nil:
		return code{bool: same(a.bool, b.bool)}, true
	case a.text != nil && b.text != nil:
		return code{bool: sameText(a.text, b.text)}, true
	case a.json != nil:
		return equalJSON(a.json, b)
	}
	return code{}, false
}

func same[T comparable](x, y func(*Input) T) func(*Input) bool {
	return func(in *Input) bool { return x(in) == y(in) }
}

func sameText(x, y func(*Input) string) func(*Input) bool {
	return func(in *Input) bool {
		a, b := x(in), y(in)
		in.cost += uint64(min(len(a), len(b))) / 10
		return a == b
	}
}

func equalJSON(v func(*Input) value, b code) (code, bool) {
	switch {
	case b.null:
		return code{bool: func(in *Input) bool { return v(in).kind == nodeNull }}, true
	case b.number != nil || b.int != nil:
		y, _ := b.asNumber()
		return code{bool: func(in *Input) bool {
			a, b := v(in), y(in)
			return a.kind == nodeNumber && a.number == b
		}}, true
	case b.bool != nil:
		return code{bool: func(in *Input) bool {
			a, b := v(in), b.bool(in)
			return a.kind == nodeTrue && b || a.kind == nodeFalse && !b
		}}, true
	case b.text != nil:
		return code{bool: func(in *Input) bool {
			a, b := v(in), b.text(in)
			return a.kind == nodeText && a.text == b
		}}, true
	}
	return code{}, false
}

// order compares numbers of any type, or texts. Values of the payload of another type have no
// order; NaN is neither less nor more than anything.
func order(name string, a, b code) (code, bool) {
	if a.json != nil {
		a, b, name = b, a, mirrored[name]
	}
	switch {
	case a.int != nil && b.int != nil:
		return ordered(name, a.int, b.int), true
	case a.isNumber() && b.isNumber():
		x, _ := a.asNumber()
		y, _ := b.asNumber()
		return ordered(name, x, y), true
	case a.isNumber() && b.json != nil:
		x, _ := a.asNumber()
		return orderedJSON(name, x, b.json), true
	case a.text != nil:
		y, ok := b.asText()
		return ordered(name, a.text, y), ok
	}
	return code{}, false
}

// mirrored is b < a as a > b.
var mirrored = map[string]string{
	operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals, operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
}

func ordered[T int64 | float64 | string](name string, x, y func(*Input) T) code {
	switch name {
	case operators.Less:
		return code{bool: func(in *Input) bool { return x(in) < y(in) }}
	case operators.LessEquals:
		return code{bool: func(in *Input) bool { return x(in) <= y(in) }}
	case operators.Greater:
		return code{bool: func(in *Input) bool { return x(in) > y(in) }}
	default:
		return code{bool: func(in *Input) bool { return x(in) >= y(in) }}
	}
}

// orderedJSON has NaN make a comparison with any value that has an order false, as the interpreter
// does.
func orderedJSON(name string, x func(*Input) float64, v func(*Input) value) code {
	return ordered(name, x, func(in *Input) float64 {
		j := v(in)
		switch j.kind {
		case nodeNumber:
			return j.number
		case nodeText, nodeTrue, nodeFalse:
			in.bad = in.bad || !math.IsNaN(x(in))
		default:
			in.bad = true
		}
		return math.NaN()
	})
}
