package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Each calls f for 0 to n-1, so many of them at once; w is which of these it is. What fails ends
// it.
func Each(n, atOnce int, f func(w, i int) error) error {
	var next atomic.Int64
	errs := make([]error, atOnce)
	var all sync.WaitGroup
	for w := range atOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = f(w, i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Closed has callers call one after the other for a span, and gives how long each call took. A
// caller that fails ends.
func Closed(ctx context.Context, callers int, span time.Duration, do func(ctx context.Context, i, n int) error) ([]time.Duration, error) {
	end := time.Now().Add(span)
	took := make([][]time.Duration, callers)
	err := Each(callers, callers, func(_, i int) error {
		for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
			began := time.Now()
			if err := do(ctx, i, n); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
		return ctx.Err()
	})
	return slices.Concat(took...), err
}

// Poll asks until there is no error, for as long at most; the last error is the result.
func Poll(ctx context.Context, within time.Duration, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
