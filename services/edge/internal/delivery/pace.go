package delivery

// Those who are behind could have all of a loop's time, and of the cores that their clients need:
// so together they get a number of messages in a millisecond, and what is live has the rest.

// Paced says that somebody waits for the next millisecond, of the clock that SetTime tells.
func (h *Hub) Paced() bool { return h.replay.runnable.Len() > 0 && h.replay.pace.Exhausted(h.now) }
