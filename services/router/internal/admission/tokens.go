package admission

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// tokens are a bucket that time fills. Callers know their time before they have their turn: a
// rate.Limiter that is asked with an earlier time than before goes back to it, and earns what lies
// between once more.
type tokens struct {
	mu     sync.Mutex
	bucket *rate.Limiter
	latest time.Time
}

func newTokens(perSecond, burst int) *tokens {
	return &tokens{bucket: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// at is the later one of now and every time before; mu is held.
func (t *tokens) at(now time.Time) time.Time {
	if now.After(t.latest) {
		t.latest = now
	}
	return t.latest
}

// spend takes n tokens; where there is not a single one it takes none and says when there will be.
func (t *tokens) spend(now time.Time, n int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.at(now)
	if !t.bucket.AllowN(now, 1) {
		missing := 1 - t.bucket.TokensAt(now)
		return max(time.Duration(missing/float64(t.bucket.Limit())*float64(time.Second)), time.Millisecond)
	}
	for n--; n > 0; n -= t.bucket.Burst() {
		t.bucket.ReserveN(now, min(n, t.bucket.Burst()))
	}
	return 0
}

// take takes n tokens, or as many as there are.
func (t *tokens) take(now time.Time, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.at(now)
	if !t.bucket.AllowN(now, n) {
		t.bucket.AllowN(now, int(max(t.bucket.TokensAt(now), 0)))
	}
}

// change gives it another rate and size from now on.
func (t *tokens) change(now time.Time, perSecond, burst int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.at(now)
	t.bucket.SetLimitAt(now, rate.Limit(perSecond))
	t.bucket.SetBurstAt(now, burst)
}

// left is how many there are, how many there may be, and how many come in a second.
func (t *tokens) left(now time.Time) (left, most, perSecond float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bucket.TokensAt(t.at(now)), float64(t.bucket.Burst()), float64(t.bucket.Limit())
}
