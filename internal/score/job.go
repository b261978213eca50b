package score

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// chunk is how many candidates are scored between two looks at the clock.
const chunk = 32

// Profile is who a ranking is for.
type Profile struct {
	Features map[string]float64
	Vector   []float32
	// Keep is how many of the best are wanted; 0: all.
	Keep int
	// Candidates that it may get, by their places in ascending order; nil: all.
	Candidates []uint32
}

// Place is a candidate that was ranked.
type Place struct {
	// Index in the candidates of the job.
	Index uint32
	Score float64
}

// Job is one ranking under way. One goroutine at a time may use it.
type Job struct {
	candidates []*pushmeshv1.Candidate
	now        time.Time
	diversify  *diversify
	scorer     scorer
	one        []target

	// Where Step is: candidates [from, to) are made ready, those of the targets before at are scored; then the targets before at are sorted.
	from, to int
	ready    bool
	sorting  bool
	at       int
	scores   [chunk]float64
}

// target is one profile's part of a job.
type target struct {
	Profile
	next   int // of Profile.Candidates
	keep   int
	best   heap
	done   []Place // filled from the end
	left   int     // of best, to be moved to done
	spread *spread
}

// Job begins a ranking. It keeps what it is given until the ranking is done. now is the time that age is counted to, if the Spec names none.
func (s *Spec) Job(candidates []*pushmeshv1.Candidate, profiles []Profile, now time.Time) (*Job, error) {
	switch {
	case len(candidates) > MaxCandidates:
		return nil, invalid("%d candidates, at most %d", len(candidates), MaxCandidates)
	case len(candidates)*len(profiles) > MaxPairs:
		return nil, invalid("%d candidates for %d profiles, at most %d pairs", len(candidates), len(profiles), MaxPairs)
	}
	j := &Job{candidates: candidates, now: now, diversify: s.diversify, one: make([]target, len(profiles))}
	for i, p := range profiles {
		if err := checkProfile(&p, len(candidates)); err != nil {
			return nil, err
		}
		t := target{Profile: p, keep: len(candidates)}
		if p.Keep > 0 && j.diversify == nil {
			t.keep = min(t.keep, p.Keep)
		}
		j.one[i] = t
	}
	var err error
	j.scorer, err = s.scorer.begin(j)
	return j, err
}

func checkProfile(p *Profile, candidates int) error {
	for name, v := range p.Features {
		if !finite(v) {
			return invalid("profile %.64q must be finite", name)
		}
	}
	for i, v := range p.Vector {
		if !finite(float64(v)) {
			return invalid("profile_vector: dimension %d must be finite", i)
		}
	}
	for i, c := range p.Candidates {
		if int(c) >= candidates || i > 0 && c <= p.Candidates[i-1] {
			return invalid("the places of a profile's candidates must grow and be below %d", candidates)
		}
	}
	return nil
}

// Step works for about slice and says whether the ranking is complete.
func (j *Job) Step(slice time.Duration) (done bool, err error) {
	began := time.Now()
	for !j.sorting {
		if err := j.score(); err != nil {
			return false, err
		}
		if time.Since(began) >= slice {
			return false, nil
		}
	}
	for j.at < len(j.one) {
		j.sort(&j.one[j.at])
		if time.Since(began) >= slice {
			break
		}
	}
	return j.at == len(j.one), nil
}

// score makes a block ready, or scores the one that is for one profile.
func (j *Job) score() error {
	if !j.ready {
		if j.from = j.to; j.from == len(j.candidates) || len(j.one) == 0 {
			j.sorting, j.at = true, 0
			return nil
		}
		j.to = min(j.from+chunk, len(j.candidates))
		for i := j.from; i < j.to; i++ {
			if err := checkCandidate(i, j.candidates[i]); err != nil {
				return err
			}
		}
		j.ready, j.at = true, 0
		return j.scorer.block(j.from, j.to)
	}
	t := &j.one[j.at]
	scores := j.scores[:j.to-j.from]
	if err := j.scorer.score(j.at, scores); err != nil {
		return err
	}
	for i, s := range scores {
		place := uint32(j.from + i)
		if !t.may(place) {
			continue
		}
		if !finite(s) {
			return invalid("candidate %d: its score is not finite", place)
		}
		t.best.offer(Place{place, s}, t.keep)
	}
	j.at++
	j.ready = j.at < len(j.one)
	return nil
}

// may says whether the profile may get a candidate; it is asked in ascending order.
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

func checkCandidate(i int, c *pushmeshv1.Candidate) error {
	if c.GetPriority() > MaxPriority {
		return invalid("candidate %d: priority %d, at most %d", i, c.GetPriority(), MaxPriority)
	}
	for name, v := range c.GetFeatures() {
		if !finite(v) {
			return invalid("candidate %d: feature %.64q must be finite", i, name)
		}
	}
	if t := c.GetPublishedAt(); t != nil {
		if err := t.CheckValid(); err != nil {
			return invalid("candidate %d: published_at: %v", i, err)
		}
	}
	return nil
}

// sort moves some of the best to their places, and goes on to the next target when all are.
func (j *Job) sort(t *target) {
	if t.done == nil {
		t.left = len(t.best)
		t.done = make([]Place, t.left)
	}
	for end := max(t.left-chunk, 0); t.left > end; {
		t.left--
		t.done[t.left] = t.best.pop()
	}
	if t.left > 0 {
		return
	}
	if j.diversify != nil {
		if t.spread == nil {
			t.spread = newSpread(t.done)
		}
		if t.spread.some(j.diversify, j.candidates) {
			return
		}
		t.done = t.spread.places()
		if t.Keep > 0 {
			t.done = t.done[:min(t.Keep, len(t.done))]
		}
	}
	t.best, t.spread = nil, nil
	j.at++
}

// Places of a profile in a complete ranking, best first.
func (j *Job) Places(profile int) []Place { return j.one[profile].done }

// Explain says what made the score of a place, largest first.
func (j *Job) Explain(profile int, p Place) []*pushmeshv1.RankResponse_Contribution {
	parts := j.scorer.explain(int(p.Index), profile)
	sortContributions(parts)
	return parts
}
