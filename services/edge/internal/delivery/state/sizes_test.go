package state

import (
	"testing"
	"unsafe"
)

// What every connection and every subscription has, whether it needs it or not, in bytes of a
// 64-bit machine. What few have belongs into ConnMore, TrackMore or SubscriptionMore.
func TestSizesOfWhatEachHas(t *testing.T) {
	for what, x := range map[string]struct{ size, budget uintptr }{
		"conn":  {unsafe.Sizeof(Conn{}), 136},
		"sub":   {unsafe.Sizeof(Subscription{}), 64},
		"track": {unsafe.Sizeof(Track{}), 80},
	} {
		if x.size > x.budget {
			t.Errorf("%s has %d bytes, the budget is %d", what, x.size, x.budget)
		}
	}
}
