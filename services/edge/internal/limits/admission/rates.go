package admission

import (
	"sync/atomic"
	"time"
)

// rates are token buckets by address: a word for each, which is a part of its hash and the time at
// which its bucket is full again (see bucket). A bucket that is full need not be remembered: its
// word is free. So there are at most as many as addresses came within a second.
type rates struct {
	words [1 << 16]atomic.Uint64
	every int64
}

const (
	// timeBits of a word count steps of timeStep nanoseconds, which is four years.
	timeBits = 44
	timeStep = 8 << 10
	near     = 8 // words that are looked at
)

func newRates(perSecond int) *rates {
	return &rates{every: max(int64(time.Second)/int64(perSecond), 1)}
}

// take takes a token of an address, and says in how many nanoseconds there is one where there is
// none. Where too many addresses come at a time some have no bucket: those are let in.
func (r *rates) take(hash uint64, now int64) (wait int64) {
	for range mostTries {
		word, old, full := r.find(hash, now)
		if word == nil {
			return 0
		}
		full += r.every
		if wait := full - now - int64(time.Second); wait > 0 {
			return wait
		}
		if word.CompareAndSwap(old, hash>>timeBits<<timeBits|uint64(full/timeStep)) {
			return 0
		}
	}
	return 0
}

// find looks for the word of an address, or for a free one. full is when its bucket is.
func (r *rates) find(hash uint64, now int64) (word *atomic.Uint64, old uint64, full int64) {
	for i := range uint64(near) {
		w := &r.words[(hash+i)%uint64(len(r.words))]
		v := w.Load()
		switch at := int64(v&(1<<timeBits-1)) * timeStep; {
		case at <= now:
			if word == nil {
				word, old, full = w, v, now
			}
		case v>>timeBits == hash>>timeBits:
			return w, v, at
		}
	}
	return word, old, full
}
