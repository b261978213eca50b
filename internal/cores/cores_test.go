package cores

import (
	"runtime"
	"testing"
)

// Spare processors come on top of those that are busy, and change nothing about what is usable.
func TestSpareProcessorsAreNoCores(t *testing.T) {
	before := Usable()
	t.Setenv("GOMAXPROCS", "")
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, busy := range []int{before, before + 3, 1} {
		if Spare(busy); runtime.GOMAXPROCS(0) < busy+spare || runtime.GOMAXPROCS(0) < before+spare || Usable() != before {
			t.Fatalf("%d busy: %d processors, %d usable cores of %d", busy, runtime.GOMAXPROCS(0), Usable(), before)
		}
	}
	now := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "1")
	if Spare(100); runtime.GOMAXPROCS(0) != now {
		t.Fatal("what the environment says is not heeded")
	}
}
