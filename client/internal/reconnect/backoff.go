package reconnect

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff doubles from Low to High, with jitter.
type Backoff struct {
	Low, High time.Duration
	tries     int
}

// Reset begins anew with Low.
func (b *Backoff) Reset() { b.tries = 0 }

// Next is how long to wait before the next try: what the other side asked for and up to a quarter
// more, or half to all of the doubled wait where that is longer.
func (b *Backoff) Next(asked time.Duration) time.Duration {
	d := b.High
	if b.tries < 20 {
		d = min(b.Low<<b.tries, b.High)
	}
	b.tries++
	asked = max(asked, 0)
	return max(d/2+rand.N(d/2+1), asked+rand.N(asked/4+1))
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
