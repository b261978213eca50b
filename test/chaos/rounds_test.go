package chaos

import (
	"testing"
	"time"
)

// rounds judges by the clock what a busy machine may delay: the same is done again, a few times at
// most, until once it takes no longer than the limit. What a round finds broken besides fails the
// test at once.
func rounds(t *testing.T, what string, limit time.Duration, round func(n int) time.Duration) {
	t.Helper()
	const most = 6
	best := time.Duration(0)
	for n := range most {
		took := round(n)
		if took <= limit {
			return
		}
		if n == 0 || took < best {
			best = took
		}
		t.Logf("round %d: %s took %s, longer than %s", n, what, took, limit)
	}
	t.Errorf("%s took %s at best in %d rounds; want %s", what, best, most, limit)
}
