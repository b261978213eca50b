// Package window says how many messages a producer may have unanswered, so that what it sends is
// answered in time: what has to be refused is refused where it is, at once and for nothing, rather
// than queued before a router that has no time for it.
package window

import "time"

const (
	// least messages may always be unanswered.
	least = 4
	// enough answers make a round; fewer say little.
	enough = 16
	// down and up are how much a round may change the limit at most, and refused how much one does
	// in which the other side refused.
	down, up, refused = 0.5, 1.5, 0.8
	// Priorities are refused one after the other, as in a router: priority p from half of the limit
	// and p twentieths on.
	base, step, highest = 0.5, 0.05, 9
)

// Window is a limit on what is unanswered that follows how long answers take (Little's law: what is
// unanswered is the rate times the wait). Once in a round, which takes about as long as answers
// should, it is multiplied by the wait that there should be over the one that there was; it grows
// only where it was in the way. It does no I/O, takes time as an input, and is not safe for
// concurrent use.
type Window struct {
	aim   time.Duration
	most  float64
	limit float64

	began  time.Time // of the round
	n      int       // answers in it
	waited time.Duration
	tight  bool // something was refused because of the limit
	forced bool // the other side refused something
}

// New makes a window that has answers wait for aim on average, with most messages unanswered at
// most, and until answers say less.
func New(aim time.Duration, most int) *Window {
	most = max(most, 1)
	return &Window{aim: aim, most: float64(most), limit: float64(most)}
}

// Limit is how many messages of the highest priority may be unanswered.
func (w *Window) Limit() int { return int(w.limit) }

// Admits reports whether one more message may be sent where so many are unanswered.
func (w *Window) Admits(unanswered int, priority uint32) bool {
	share := min(base+step*float64(min(priority, highest)+1), 1)
	if unanswered == 0 || float64(unanswered) < w.limit*share {
		return true
	}
	w.tight = true
	return false
}

// Answered takes an answer to a message that waited for it for so long; late says that it was
// refused for want of time or room.
func (w *Window) Answered(now time.Time, waited time.Duration, late bool) {
	if w.n == 0 {
		w.began = now
	}
	w.forced = w.forced || late
	w.n++
	w.waited += max(waited, 0)
	if w.n < enough || now.Sub(w.began) < w.aim {
		return
	}
	w.round(w.waited / time.Duration(w.n))
	w.n, w.waited, w.tight, w.forced = 0, 0, false, false
}

func (w *Window) round(mean time.Duration) {
	factor := up
	if mean > 0 {
		factor = min(max(float64(w.aim)/float64(mean), down), up)
	}
	if w.forced {
		factor = min(factor, refused)
	}
	if factor > 1 && !w.tight {
		return
	}
	w.limit = min(max(w.limit*factor, least), w.most)
}
