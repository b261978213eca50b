package pushmesh

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// backoff doubles from low to high, with jitter.
type backoff struct {
	low, high time.Duration
	tries     int
}

func (b *backoff) reset() { b.tries = 0 }

// next is how long to wait after err: what the edge asked for and up to a quarter more, or half to
// all of the doubled wait.
func (b *backoff) next(err error) time.Duration {
	d := b.high
	if b.tries < 20 {
		d = min(b.low<<b.tries, b.high)
	}
	b.tries++
	d = d/2 + rand.N(d/2+1)
	var away *goAway
	if errors.As(err, &away) && !away.due.IsZero() {
		return max(time.Until(away.due), 0) // jittered by the edge already
	}
	var e *Error
	if errors.As(err, &e) {
		return max(d, e.RetryAfter+rand.N(e.RetryAfter/4+1))
	}
	return d
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
