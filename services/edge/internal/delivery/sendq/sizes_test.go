package sendq

import (
	"math/bits"
	"testing"
)

// The size of a queue is known to an eighth, whatever the budget is; small ones are not listed, and
// with the whole budget there is room for many of those.
func TestSizesAreKnownToAnEighth(t *testing.T) {
	for _, budget := range []int64{0, 1, 1 << 20, unlisted * leastListed, unlisted * (leastListed + mostListed) / 2, unlisted * mostListed, 1 << 40} {
		l := newSizes(budget)
		first := l.least(1)
		if first < leastListed/2 || first > mostListed || int64(first)*unlisted > 2*max(budget, unlisted*leastListed) {
			t.Fatalf("a budget of %d: a queue of %d bytes is listed", budget, first)
		}
		for class := 1; class < sizeClasses-1; class++ {
			low, high := l.least(class), l.least(class+1)
			if bits.Len(uint(high)) > 50 {
				break
			}
			if high <= low || high-low > low/8 || l.class(low) != uint8(class) || l.class(high-1) != uint8(class) || l.class(high) != uint8(class+1) {
				t.Fatalf("a budget of %d: class %d is from %d to %d, and has %d, %d", budget, class, low, high, l.class(low), l.class(high-1))
			}
		}
		for _, held := range []int{-5, 0, 1, first - 1} {
			if l.class(held) != 0 {
				t.Fatalf("a budget of %d: a queue of %d bytes is listed", budget, held)
			}
		}
		if n := l.class(1 << 62); int(n) > sizeClasses-1 || n == 0 {
			t.Fatalf("all there is is of class %d", n)
		}
	}
}
