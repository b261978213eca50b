package score

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Profile is who a ranking is for.
type Profile struct {
	Features map[string]float64
	Vector   []float32
	// Keep is how many of the best are wanted; 0: all.
	Keep int
	// Candidates that it may get, by their places in ascending order; nil: all.
	Candidates []uint32
	// Explain: what made each score is wanted too.
	Explain bool
}

// Place is a candidate that was ranked.
type Place struct {
	// Index in the candidates of the job.
	Index uint32
	Score float64
}

// Contribution is a part of a score.
type Contribution = pushmeshv1.RankResponse_Contribution

// Job is one ranking under way. One goroutine at a time may use it.
type Job struct {
	spec       *Spec
	candidates []Candidate
	now        time.Time
	once, each int // cost
	filter     *filter
	diversify  *diversify
	scorer     scorer
	one        []target
	lenient    bool

	// Where Step is: blocks are scored for the targets before at; then the targets before at are
	// done.
	block  block
	ready  bool
	scored bool
	at     int
	pairs  int // scored so far
}

// Job begins a ranking. It keeps what it is given until the ranking is done. now is the time that
// age is counted to, if the Spec names none.
func (s *Spec) Job(candidates []Candidate, profiles []Profile, now time.Time) (*Job, error) {
	switch {
	case len(candidates) > MaxCandidates:
		return nil, invalid("%d candidates, at most %d", len(candidates), MaxCandidates)
	case len(candidates)*len(profiles) > MaxPairs:
		return nil, invalid("%d candidates for %d profiles, at most %d pairs", len(candidates), len(profiles), MaxPairs)
	}
	if !s.now.IsZero() {
		now = s.now
	}
	j := &Job{spec: s, candidates: candidates, now: now, filter: s.filter, diversify: s.diversify, one: make([]target, len(profiles))}
	j.once, j.each = s.costs()
	for i, p := range profiles {
		if err := s.checkProfile(&p, len(candidates)); err != nil {
			return nil, err
		}
		t := target{Profile: p, keep: len(candidates)}
		if p.Keep > 0 && j.diversify == nil {
			t.keep = min(t.keep, p.Keep)
		}
		j.one[i] = t
	}
	if s.inputs {
		j.block.inputs = make([]expr.Input, chunk)
	}
	var err error
	j.scorer, err = s.scorer.begin(j)
	return j, err
}

func (s *Spec) checkProfile(p *Profile, candidates int) error {
	for name, v := range p.Features {
		if !finite(v) {
			return invalid("profile %.64q must be finite", name)
		}
	}
	if err := checkVector(p.Vector); err != nil {
		return invalid("profile_vector: %v", err)
	}
	for i, c := range p.Candidates {
		if int(c) >= candidates || i > 0 && c <= p.Candidates[i-1] {
			return invalid("the indices of a profile's candidates must be ascending and below %d", candidates)
		}
	}
	if !p.Explain {
		return nil
	}
	if wanted := p.Places(candidates); wanted > MaxExplained {
		return invalid("explain: %d candidates, at most %d; top_k says how many", wanted, MaxExplained)
	}
	if cost := s.scorer.explainCost(); cost > maxExplain {
		return invalid("explain: the model is too large, a score would take %d steps, at most %d", cost, maxExplain)
	}
	return nil
}

// Places is how many of so many candidates a profile gets at most.
func (p *Profile) Places(candidates int) int {
	if p.Candidates != nil {
		candidates = len(p.Candidates)
	}
	if p.Keep > 0 {
		return min(p.Keep, candidates)
	}
	return candidates
}

// Step works for about slice and reports whether the ranking is complete.
func (j *Job) Step(slice time.Duration) (done bool, err error) {
	for began := time.Now(); ; {
		if done, err := j.some(); done || err != nil {
			return done, err
		}
		if time.Since(began) >= slice {
			return false, nil
		}
	}
}

// some does what is not cut further.
func (j *Job) some() (done bool, err error) {
	if !j.scored {
		return false, j.score()
	}
	if j.at < len(j.one) && j.order(&j.one[j.at]) {
		j.at++
	}
	return j.at == len(j.one), nil
}

// score makes a block ready, or scores the one that is for one profile.
func (j *Job) score() error {
	if !j.ready {
		if j.block.to == len(j.candidates) || len(j.one) == 0 {
			j.scored, j.at = true, 0
			return nil
		}
		if err := j.next(); err != nil {
			return err
		}
		j.ready, j.at = true, 0
		return j.scorer.block(j.block.places)
	}
	if err := j.scoreFor(j.at); err != nil {
		return err
	}
	j.at++
	j.ready = j.at < len(j.one)
	return nil
}

// Scored counts the pairs of a candidate and a profile that were scored so far.
func (j *Job) Scored() int { return j.pairs }

// Lenient has the ranking go on where a candidate has no finite score, or its evaluation costs too
// much: it is among nobody's best, or does not pass the filter. Without it the whole ranking ends
// with INVALID_ARGUMENT. For candidates that come from somebody else than who asks.
func (j *Job) Lenient() { j.lenient = true }

// Places of a profile in a complete ranking, best first.
func (j *Job) Places(profile int) []Place { return j.one[profile].done }

// Filtered are the places, ascending, of a profile's candidates that the filter left out.
func (j *Job) Filtered(profile int) []uint32 { return j.one[profile].filtered }

// Explained says what made the scores of Places, one by one, largest first; empty where that was
// not wanted.
func (j *Job) Explained(profile int) [][]*Contribution { return j.one[profile].explained }
