package shardlog

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A key of a commit that is found out about late, or of a clock that went back, does not have the
// cache answer for keys that it has dropped.
func TestAnEarlierKeyCoversNothingLater(t *testing.T) {
	c := keyCache{keysMax: 2, generationDuration: time.Hour}
	for i, at := range []uint64{100, 110, 50, 120, 130} {
		c.put(backend.Key{Hash: backend.KeyHash{byte(i + 1)}, Until: 1000}, at)
	}
	if _, known := c.get(backend.KeyHash{2}, 131); known {
		t.Fatal("three generations are kept")
	}
	if !c.missing(30*time.Microsecond, 131) {
		t.Error("a key that was used 21 µs ago and is not here counts as not used")
	}
}
