package walk

// Round goes over places once, from the last to the first, and begins anywhere: from where it
// begins down to the first place, then from the last down to there. What takes the place of one
// that goes meanwhile was visited, or will be. The zero value begins behind the last place.
type Round struct {
	at, from uint32
	again    bool // the first places are done: it goes on from the last
}

// RoundFrom begins in front of a place; as many as that are visited first.
func RoundFrom(place uint32) Round { return Round{at: place, from: place} }

// Next is the next of n places; false once all were visited.
func (r *Round) Next(n uint32) (place uint32, ok bool) {
	r.at = min(r.at, n)
	if r.at == 0 && !r.again {
		r.again, r.at = true, n
	}
	if r.again && r.at <= r.from {
		return 0, false
	}
	r.at--
	return r.at, true
}
