package turns

import (
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Bounds of who asks rarely: so many times until it was quiet for so long.
const (
	RareMost = 8
	RareFor  = 10 * time.Second
)

// Rare tells those who ask rarely from those who ask again and again. It keeps something of those
// alone who asked lately. It is not safe for concurrent use; the zero Rare knows nobody.
type Rare[K comparable] struct {
	of   map[K]asks
	line walk.FIFO[K] // of all in of, in no order but for the first's being looked at first
}

type asks struct {
	n  int
	at time.Time // of the last
}

// Ask notes that key asks, and reports whether it does so rarely: it has asked less than RareMost
// times since it was quiet for RareFor.
func (r *Rare[K]) Ask(now time.Time, key K) bool {
	r.forget(now)
	a, known := r.of[key]
	switch {
	case !known:
		if r.of == nil {
			r.of = map[K]asks{}
		}
		r.line.Push(key)
	case now.Sub(a.at) >= RareFor:
		a.n = 0
	}
	a.n, a.at = min(a.n+1, RareMost+1), now
	r.of[key] = a
	return a.n <= RareMost
}

// forget looks at two of those who asked, so that more are forgotten than come.
func (r *Rare[K]) forget(now time.Time) {
	for range min(2, r.line.Len()) {
		key, _ := r.line.Pop()
		if now.Sub(r.of[key].at) >= RareFor {
			delete(r.of, key)
			continue
		}
		r.line.Push(key)
	}
	if r.line.Len() == 0 {
		*r = Rare[K]{}
	}
}
