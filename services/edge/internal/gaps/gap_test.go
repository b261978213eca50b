package gaps

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const expired, filtered = wirev1.Code_CODE_EXPIRED, wirev1.Code_CODE_FILTERED

// Messages that follow each other and are missing for the same reason are one gap; others are not.
func TestWhatAGapTakes(t *testing.T) {
	var g Gap
	if g.IsOpen() || !g.Takes(5, expired) || g.Precedes(9) {
		t.Fatalf("the zero value is a gap: %+v", g)
	}
	if !g.Add(5, 6, expired, 100) || g.Due != 100+int64(Delay) {
		t.Fatalf("its first messages begin no gap: %+v", g)
	}
	for _, tt := range []struct {
		from uint64
		why  wirev1.Code
		want bool
	}{{7, expired, true}, {8, expired, false}, {7, filtered, false}, {5, expired, false}} {
		if g.Takes(tt.from, tt.why) != tt.want {
			t.Errorf("5 to 6 takes %d on, %v: %v", tt.from, tt.why, !tt.want)
		}
	}
	if g.Add(7, 9, expired, 500) || g.From != 5 || g.To != 9 || g.Due != 100+int64(Delay) {
		t.Fatalf("what follows begins another gap, or puts it off: %+v", g)
	}
	if g.Precedes(5) || !g.Precedes(6) || !g.Precedes(10) {
		t.Fatal("it is to be reported before messages that it does not precede, or is not")
	}
}
