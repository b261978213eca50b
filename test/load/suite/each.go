package suite

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Each calls f for 0 to n-1, so many of them at once; w is which of these it is. What fails ends it.
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
