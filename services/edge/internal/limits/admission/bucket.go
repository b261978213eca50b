package admission

import (
	"sync/atomic"
	"time"
)

// bucket is a token bucket in one word (the generic cell rate algorithm, ITU-T I.371): the time at
// which it would be full again. It holds a second's worth.
type bucket struct {
	every int64 // nanoseconds; 0: no limit
	full  atomic.Int64
}

func newBucket(perSecond int) bucket {
	if perSecond <= 0 {
		return bucket{}
	}
	return bucket{every: max(int64(time.Second)/int64(perSecond), 1)}
}

// has reports whether a token is there.
func (b *bucket) has(now int64) bool {
	return b.every == 0 || b.full.Load()+b.every-now <= int64(time.Second)
}

// take takes one, be it there or not.
func (b *bucket) take(now int64) {
	if b.every == 0 {
		return
	}
	for {
		full := b.full.Load()
		if b.full.CompareAndSwap(full, max(full, now)+b.every) {
			return
		}
	}
}
