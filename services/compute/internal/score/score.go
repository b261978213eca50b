// Package score ranks candidates by weighted features, recency and priority, in slices of a given time. It is pure: no
// goroutine, no clock beyond the slices' own, the same result for the same request.
package score

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Bounds of a request.
const (
	MaxCandidates = 100_000
	MaxPriority   = 9
)

// chunk is how many candidates are scored between two looks at the clock.
const chunk = 32

// term is one feature with its factor: a weight, or an affinity with the profile's value.
type term struct {
	feature string
	weight  float64
	profile float64
}

// Job is one ranking under way. One goroutine at a time may use it.
type Job struct {
	candidates []*pushmeshv1.Candidate
	weights    []term // sorted by feature: floating-point sums depend on their order, results must not
	affinities []term
	bias       float64
	priority   float64
	halfLife   float64 // seconds; 0: no decay
	now        time.Time
	keep       int

	at     int // candidates[:at] are scored
	best   heap
	ranked []*pushmeshv1.RankResponse_Ranked // filled from the end
	left   int                               // of best, to be moved to ranked
}

// New checks what can be checked without looking at every candidate's features. now is the time of the call.
func New(r *pushmeshv1.RankRequest, now time.Time) (*Job, error) {
	w := r.GetWeighted()
	switch {
	case len(r.GetCandidates()) > MaxCandidates:
		return nil, invalid("%d candidates, at most %d", len(r.GetCandidates()), MaxCandidates)
	case r.GetExpression() != nil || r.GetEmbedding() != nil || r.GetModel() != nil || r.GetNamespace() != "":
		return nil, unsupported("the only scorer is weighted")
	case r.GetFilter() != "" || r.GetDiversify() != nil || r.GetExplain():
		return nil, unsupported("filter, diversify and explain are not supported")
	case w == nil:
		return nil, invalid("no scorer: weighted is unset")
	case !finite(w.GetBias()) || !finite(w.GetPriorityWeight()):
		return nil, invalid("bias and priority_weight must be finite")
	}
	j := &Job{
		candidates: r.GetCandidates(), bias: w.GetBias(), priority: w.GetPriorityWeight(), now: now,
		keep: len(r.GetCandidates()),
	}
	if k := int(r.GetTopK()); k > 0 {
		j.keep = min(j.keep, k)
	}
	if w.GetNow() != nil {
		if err := w.GetNow().CheckValid(); err != nil {
			return nil, invalid("now: %v", err)
		}
		j.now = w.GetNow().AsTime()
	}
	if h := w.GetHalfLife(); h != nil {
		if h.CheckValid() != nil || h.AsDuration() < 0 {
			return nil, invalid("half_life must be a duration of 0 or more")
		}
		j.halfLife = h.AsDuration().Seconds()
	}
	for name, v := range r.GetProfile() {
		if !finite(v) {
			return nil, invalid("profile %.64q must be finite", name)
		}
	}
	var err error
	if j.weights, err = terms("weight", w.GetWeights(), nil); err != nil {
		return nil, err
	}
	j.affinities, err = terms("affinity", w.GetAffinities(), r.GetProfile())
	return j, err
}

// terms sorts a map of factors. Where a profile is given, factors that it has nothing for are left out: they add 0.
func terms(what string, m, profile map[string]float64) ([]term, error) {
	out := make([]term, 0, len(m))
	for name, v := range m {
		if !finite(v) {
			return nil, invalid("%s of %.64q must be finite", what, name)
		}
		if p := profile[name]; what == "weight" || p != 0 {
			out = append(out, term{name, v, p})
		}
	}
	slices.SortFunc(out, func(a, b term) int {
		if a.feature < b.feature {
			return -1
		}
		return 1
	})
	return out, nil
}

// Cost estimates the work of a request in steps of some tens of nanoseconds: what each candidate carries is checked,
// and each term is looked up in it.
func Cost(r *pushmeshv1.RankRequest) int {
	cost := 0
	per := 4 + len(r.GetWeighted().GetWeights()) + len(r.GetWeighted().GetAffinities())
	for _, c := range r.GetCandidates() {
		cost += per + len(c.GetFeatures())
	}
	return cost
}

// Step works for about slice and says whether the ranking is complete.
func (j *Job) Step(slice time.Duration) (done bool, err error) {
	began := time.Now()
	for j.at < len(j.candidates) {
		for end := min(j.at+chunk, len(j.candidates)); j.at < end; j.at++ {
			s, err := j.score(j.at)
			if err != nil {
				return false, err
			}
			j.best.offer(entry{s, uint32(j.at)}, j.keep)
		}
		if time.Since(began) >= slice {
			return false, nil
		}
	}
	if j.ranked == nil {
		j.left = len(j.best)
		j.ranked = make([]*pushmeshv1.RankResponse_Ranked, j.left)
	}
	for j.left > 0 {
		for end := max(j.left-chunk, 0); j.left > end; {
			worst := j.best.pop()
			j.left--
			j.ranked[j.left] = &pushmeshv1.RankResponse_Ranked{
				Id: j.candidates[worst.index].GetId(), Score: worst.score, Index: worst.index,
			}
		}
		if j.left > 0 && time.Since(began) >= slice {
			return false, nil
		}
	}
	return true, nil
}

// Response of a complete ranking.
func (j *Job) Response() *pushmeshv1.RankResponse {
	return &pushmeshv1.RankResponse{Ranked: j.ranked}
}

// score is WeightedScorer's formula. Age is at least 0, and 0 without published_at: clocks that differ
// must not lift a message.
func (j *Job) score(i int) (float64, error) {
	c := j.candidates[i]
	if c.GetPriority() > MaxPriority {
		return 0, invalid("candidate %d: priority %d, at most %d", i, c.GetPriority(), MaxPriority)
	}
	features := c.GetFeatures()
	for name, v := range features {
		if !finite(v) {
			return 0, invalid("candidate %d: feature %.64q must be finite", i, name)
		}
	}
	sum := j.bias
	for _, t := range j.weights {
		sum += t.weight * features[t.feature]
	}
	for _, t := range j.affinities {
		sum += t.weight * features[t.feature] * t.profile
	}
	sum += j.priority * float64(c.GetPriority())
	if j.halfLife > 0 && c.GetPublishedAt() != nil {
		if err := c.GetPublishedAt().CheckValid(); err != nil {
			return 0, invalid("candidate %d: published_at: %v", i, err)
		}
		if age := j.now.Sub(c.GetPublishedAt().AsTime()).Seconds(); age > 0 {
			sum *= math.Exp2(-age / j.halfLife)
		}
	}
	if !finite(sum) {
		return 0, invalid("candidate %d: its score is not finite", i)
	}
	return sum, nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func unsupported(what string) error { return code.New(wirev1.Code_CODE_UNSUPPORTED, what) }

func invalid(format string, args ...any) error {
	return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf(format, args...))
}
