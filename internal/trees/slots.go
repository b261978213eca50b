package trees

import (
	"errors"
	"math"
	"strconv"
)

// step is a node as it is walked: go to child, or to child+1 where the row's slot is greater than
// key. A leaf's child is itself.
type step struct {
	key int64
	// slot of the row; with category's bit the split is categorical, and key is where its set
	// stands: its first word and, in the upper half, how many words it has.
	slot  uint32
	child uint32
}

const (
	category = uint32(1) << 31
	// never is greater than no slot: a leaf stays.
	never = math.MaxInt64
	// always is less than every slot but one of missing values that go left.
	always = math.MinInt64
)

// slot is a column seen in one of the ways below.
type slot struct {
	column int32
	as     way
}

type way uint8

const (
	// Numbers, as integers of the same order. NaN is 0, …
	nanZero way = iota
	// … or the smallest or the largest integer, which takes the default direction at every split, …
	nanLeft
	nanRight
	// … and so is what is next to 0.
	zeroLeft
	zeroRight
	// Categories, as integers; outside and inside are those that no set and that every set has.
	lightCategory
	nanOutside
	nanInside
)

const (
	outside = int64(-1)
	inside  = int64(-2)
	// nextToZero is LightGBM's kZeroThreshold, a float32.
	nextToZero = float64(float32(1e-35))
	// xgboostCategories is where XGBoost ends: what a float32 counts exactly.
	xgboostCategories = 1 << 24
)

// split fills the step of a split.
func (f *forest) split(s *step, n *node) error {
	if n.feature < 0 || int(n.feature) >= f.limits.Columns {
		return errors.New("a split uses column " + strconv.Itoa(int(n.feature)))
	}
	f.widest = max(f.widest, n.feature)
	if n.categorical {
		return f.splitCategories(s, n)
	}
	if math.IsNaN(n.threshold) {
		return errors.New("a threshold is NaN")
	}
	var as way
	switch {
	case n.missing == missingNone:
		as = nanZero
	case n.missing == missingZero && n.defaultLeft:
		as = zeroLeft
	case n.missing == missingZero:
		as = zeroRight
	case n.defaultLeft:
		as = nanLeft
	default:
		as = nanRight
	}
	s.slot = f.slotFor(n.feature, as)
	s.key = order(n.threshold)
	if f.single {
		s.key = orderBelow(float32(n.threshold))
	}
	return nil
}

func (f *forest) splitCategories(s *step, n *node) error {
	as := lightCategory
	if f.single {
		as = nanOutside
		if n.defaultLeft != n.setRight {
			as = nanInside
		}
	}
	if len(n.set) > f.limits.CategoryWords-len(f.sets) {
		return errors.New("its splits list more than " + strconv.Itoa(32*f.limits.CategoryWords) + " categories")
	}
	s.slot = f.slotFor(n.feature, as) | category
	s.key = int64(len(n.set))<<32 | int64(len(f.sets))
	f.sets = append(f.sets, n.set...)
	return nil
}

func (f *forest) slotFor(column int32, as way) uint32 {
	s := slot{column: column, as: as}
	at, ok := f.slotOf[s]
	if !ok {
		at = uint32(len(f.slots))
		f.slotOf[s] = at
		f.slots = append(f.slots, s)
	}
	return at
}

// order is an integer that compares like x, which is not NaN. -0 is just below 0, which a threshold
// never is.
func order(x float64) int64 {
	if x == 0 {
		return 0
	}
	return orderBits(x)
}

func orderBits(x float64) int64 {
	b := int64(math.Float64bits(x))
	return b ^ int64(uint64(b>>63)>>1)
}

// orderBelow makes x < threshold of two float32 an order of x <= the key.
func orderBelow(threshold float32) int64 {
	if math.IsInf(float64(threshold), -1) {
		return always
	}
	return order(float64(math.Nextafter32(threshold, float32(math.Inf(-1)))))
}

// read gives the slot's integer for x.
func (s slot) read(x float64) int64 {
	switch s.as {
	case nanZero:
		if x != x {
			return 0
		}
	case nanLeft:
		if x != x {
			return always
		}
	case nanRight:
		if x != x {
			return never
		}
	case zeroLeft:
		if !(math.Abs(x) > nextToZero) {
			return always
		}
	case zeroRight:
		if !(math.Abs(x) > nextToZero) {
			return never
		}
	default:
		return s.category(x)
	}
	return orderBits(x)
}

// category is the number of the category x. Fractions are cut off, as C does.
func (s slot) category(x float64) int64 {
	if s.as == lightCategory {
		// The library's conversion gives what doesn't fit an int32 a negative number, which no set
		// has.
		if !(x > -1 && x < 1<<31) {
			return outside
		}
		return int64(x)
	}
	if x != x {
		if s.as == nanInside {
			return inside
		}
		return outside
	}
	if x < 0 || x >= xgboostCategories {
		return outside
	}
	return int64(x)
}

// has reports whether the set at key, of a categorical step, holds category c.
func (m *Model) has(key, c int64) bool {
	if c < 0 {
		return c == inside
	}
	if word := c >> 5; word < key>>32 {
		return m.sets[key&math.MaxUint32+word]>>(uint(c)&31)&1 != 0
	}
	return false
}
