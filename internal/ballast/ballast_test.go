package ballast

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
)

func goal() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// resident pages of this process, in bytes.
func resident(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func TestBallastDefersTheCollectorAndTakesNoMemory(t *testing.T) {
	runtime.GC()
	goalBefore, residentBefore := goal(), resident(t)
	b := New(Size)
	runtime.GC()
	if grown := goal() - goalBefore; grown < Size {
		t.Errorf("the collector's next run is %d bytes later, less than %d", grown, Size)
	}
	if grown := resident(t) - residentBefore; grown > Size/4 {
		t.Errorf("ballast of %d bytes takes %d of the machine's memory", Size, grown)
	}
	runtime.KeepAlive(b)
}

// Where the runtime has cleared the addresses that it gave, it has the system put memory there.
func TestClearedBallastTakesNoMemoryEither(t *testing.T) {
	b := make(Ballast, Size)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	before := resident(t)
	b.giveBack()
	if freed := before - resident(t); freed < Size*3/4 {
		t.Errorf("%d bytes of %d are given back", freed, Size)
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		if b[i] != 0 {
			t.Fatalf("byte %d is %d", i, b[i])
		}
	}
}
