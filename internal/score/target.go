package score

// target is one profile's part of a job.
type target struct {
	Profile
	next      int // of Profile.Candidates
	keep      int
	filtered  []uint32 // ascending
	best      heap
	done      []Place // filled from the end
	left      int     // of best, to be moved to done
	spread    *spread
	sorted    bool
	explained [][]*Contribution
}

// may reports whether the profile may get a candidate; it is asked in ascending order.
func (t *target) may(place uint32) bool {
	if t.Candidates == nil {
		return true
	}
	if t.next < len(t.Candidates) && t.Candidates[t.next] == place {
		t.next++
		return true
	}
	return false
}

// order brings some of the best to their places, then explains them one by one, and reports whether
// all is done.
func (j *Job) order(t *target) (done bool) {
	if !t.sorted {
		t.sorted = j.sort(t)
		return t.sorted && !t.Explain
	}
	if n := len(t.explained); n < len(t.done) {
		parts := j.scorer.explain(int(t.done[n].Index), j.at)
		sortContributions(parts)
		t.explained = append(t.explained, parts)
	}
	return len(t.explained) == len(t.done)
}

// sort moves some of the best to their places, and reports whether all are there.
func (j *Job) sort(t *target) (done bool) {
	if t.done == nil {
		t.left = len(t.best)
		t.done = make([]Place, t.left)
	}
	for end := max(t.left-chunk, 0); t.left > end; {
		t.left--
		t.done[t.left] = t.best.pop()
	}
	if t.left > 0 {
		return false
	}
	if j.diversify != nil {
		if t.spread == nil {
			t.spread = newSpread(t.done)
		}
		if t.spread.some(j.diversify, j.candidates) {
			return false
		}
		t.done = t.spread.places()
		if t.Keep > 0 {
			t.done = t.done[:min(t.Keep, len(t.done))]
		}
	}
	t.best, t.spread = nil, nil
	return true
}
