package loop

import (
	"testing"
	"unsafe"
)

// What every socket has, in bytes of a 64-bit machine. What few have belongs into peerMore.
func TestSizeOfAPeer(t *testing.T) {
	if n := unsafe.Sizeof(peer{}); n > 32 {
		t.Errorf("a peer has %d bytes, the budget is 32", n)
	}
}
