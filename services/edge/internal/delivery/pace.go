package delivery

import "time"

// Those who are behind could have all of a loop's time, and of the cores that their clients need:
// so together they get a number of messages in a millisecond, and what is live has the rest.

// paced says that those who are behind have had theirs, until the next millisecond.
func (r *replayer) paced() bool {
	if r.hub.lim.ReplayPace <= 0 {
		return false
	}
	if in := r.hub.now / int64(time.Millisecond); in != r.replayedIn {
		r.replayedIn, r.replayed = in, 0
	}
	return r.replayed >= r.hub.lim.ReplayPace
}

// Paced says that somebody waits for the next millisecond, of the clock that SetTime tells.
func (h *Hub) Paced() bool { return h.replay.runnable.Len() > 0 && h.replay.paced() }
