package position

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Which reasons are losses, and how many messages they name.
func TestWhatIsTold(t *testing.T) {
	for c, want := range map[wirev1.Code]bool{
		wirev1.Code_CODE_OK: false, wirev1.Code_CODE_EPOCH_CHANGED: false, wirev1.Code_CODE_FILTERED: false, wirev1.Code_CODE_NOT_YOURS: false, wirev1.Code_CODE_CONFLATED: false,
		wirev1.Code_CODE_RANKED_OUT: false, wirev1.Code_CODE_EXPIRED: false, wirev1.Code_CODE_RETENTION: true, wirev1.Code_CODE_QUEUE_FULL: true, wirev1.Code_CODE_MEMORY_BUDGET: true,
		wirev1.Code_CODE_ATTEMPTS_EXHAUSTED: true,
	} {
		if Lost(c) != want {
			t.Errorf("%v is a loss: %v", c, Lost(c))
		}
	}
	for _, x := range []struct{ from, to, want uint64 }{{0, 0, 0}, {1, 1, 1}, {0, 3, 3}, {3, 5, 3}, {6, 5, 0}, {5, 0, 0}} {
		if got := Missed(&wirev1.Progress{From: x.from, To: x.to}); got != x.want {
			t.Errorf("%d to %d are %d messages, want %d", x.from, x.to, got, x.want)
		}
	}
}
