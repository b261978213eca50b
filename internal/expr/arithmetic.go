package expr

import (
	"math"
	"math/bits"

	"cel.dev/cel-go/common/operators"
)

func negate(a code) (code, bool) {
	if f := a.number; f != nil {
		return code{number: func(in *Input) float64 { return -f(in) }}, true
	}
	if i := a.int; i != nil {
		return code{int: func(in *Input) int64 {
			v := i(in)
			in.bad = in.bad || v == math.MinInt64
			return -v
		}}, true
	}
	return code{}, false
}

// arithmetic of two doubles or two ints; what is of the payload is a double where the other is.
func arithmetic(name string, a, b code) (code, bool) {
	if a.int != nil && b.int != nil {
		return integers(name, a.int, b.int)
	}
	if a.number == nil && b.number == nil || a.int != nil || b.int != nil {
		return code{}, false
	}
	x, okX := a.asNumber()
	y, okY := b.asNumber()
	if !okX || !okY {
		return code{}, false
	}
	if b.fixed {
		return withFixed(name, x, b.value)
	}
	switch name {
	case operators.Add:
		return code{number: func(in *Input) float64 { return x(in) + y(in) }}, true
	case operators.Subtract:
		return code{number: func(in *Input) float64 { return x(in) - y(in) }}, true
	case operators.Multiply:
		return code{number: func(in *Input) float64 { return x(in) * y(in) }}, true
	case operators.Divide:
		return code{number: func(in *Input) float64 { return x(in) / y(in) }}, true
	}
	return code{}, false
}

// withFixed saves the call of a constant.
func withFixed(name string, x func(*Input) float64, k float64) (code, bool) {
	switch name {
	case operators.Add:
		return code{number: func(in *Input) float64 { return x(in) + k }}, true
	case operators.Subtract:
		return code{number: func(in *Input) float64 { return x(in) - k }}, true
	case operators.Multiply:
		return code{number: func(in *Input) float64 { return x(in) * k }}, true
	case operators.Divide:
		return code{number: func(in *Input) float64 { return x(in) / k }}, true
	}
	return code{}, false
}

// integers has no value where the result is none of 64 bits.
func integers(name string, x, y func(*Input) int64) (code, bool) {
	var do func(a, b int64) (int64, bool)
	switch name {
	case operators.Add:
		do = func(a, b int64) (int64, bool) { c := a + b; return c, (c > a) == (b > 0) }
	case operators.Subtract:
		do = func(a, b int64) (int64, bool) { c := a - b; return c, (c < a) == (b > 0) }
	case operators.Multiply:
		do = multiply
	case operators.Divide:
		do = func(a, b int64) (int64, bool) {
			if b == 0 || a == math.MinInt64 && b == -1 {
				return 0, false
			}
			return a / b, true
		}
	case operators.Modulo:
		do = func(a, b int64) (int64, bool) {
			if b == 0 || a == math.MinInt64 && b == -1 {
				return 0, false
			}
			return a % b, true
		}
	default:
		return code{}, false
	}
	return code{int: func(in *Input) int64 {
		v, ok := do(x(in), y(in))
		in.bad = in.bad || !ok
		return v
	}}, true
}

func multiply(a, b int64) (int64, bool) {
	high, low := bits.Mul64(magnitude(a), magnitude(b))
	if high != 0 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(low), low <= 1<<63
	}
	return int64(low), low < 1<<63
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}
