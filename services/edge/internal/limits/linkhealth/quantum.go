package linkhealth

import "math/bits"

// quantum is a round trip in a byte: four bits of mantissa behind a leading one, four of exponent,
// in units of 64 µs. It is within 1/32 of what it stands for, or 32 µs below a millisecond, and the
// greatest stands for all from 32 s on.
type quantum uint8

const (
	unit    = 64 // µs
	longest = quantum(255)
)

func quantumOf(us uint32) quantum {
	units := us / unit
	if units < 16 {
		return quantum(units)
	}
	exp := bits.Len32(units) - 5
	if exp >= 15 {
		return longest
	}
	return quantum((exp+1)<<4 | int(units>>exp&15))
}

// us is the middle of what the quantum stands for, in microseconds.
func (q quantum) us() uint32 {
	if q < 16 {
		return uint32(q)*unit + unit/2
	}
	exp := q>>4 - 1
	return (2*(16|uint32(q)&15) + 1) << exp * unit / 2
}
