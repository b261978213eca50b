package ranking

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// local is a cpupool.Task that scores a ranking here, part by part.
type local struct {
	k   *ranking
	at  int // of the ranking's parts
	job *score.Job
}

// Step implements cpupool.Task.
func (l *local) Step(slice time.Duration) (done bool, err error) {
	for began := time.Now(); l.at < len(l.k.parts); {
		left := slice - time.Since(began)
		if left <= 0 {
			return false, nil
		}
		if l.job == nil {
			if l.job, err = l.k.job(l.k.parts[l.at]); err != nil {
				return false, err
			}
			continue
		}
		done, err := l.job.Step(left)
		if err != nil {
			return false, err
		}
		if done {
			l.take()
		}
	}
	return true, nil
}

// job of a part.
func (k *ranking) job(p part) (*score.Job, error) {
	profiles := k.distinct[p.from:p.to]
	k.withVector(profiles)
	j, err := k.scoring.spec.Job(k.candidates, profiles, k.began)
	if err != nil {
		return nil, err
	}
	j.Lenient() // one message shall not leave the others of its topic unranked
	return j, nil
}

// withVector gives one of the profiles a vector of zeros where none has any, since an embedding
// scorer wants one: it stands for none.
func (k *ranking) withVector(profiles []score.Profile) {
	if k.asked.Policy.Rank.GetEmbedding() == nil {
		return
	}
	for i := range profiles {
		if len(profiles[i].Vector) > 0 {
			return
		}
	}
	profiles[0].Vector = make([]float32, max(k.dimensions, 1))
}

// take the results of a part that is done.
func (l *local) take() {
	part := l.k.parts[l.at]
	total := 0
	for i := range part.to - part.from {
		total += len(l.job.Places(i))
	}
	all := make([]exchange.RankedPlace, 0, total) // of the whole part
	for i := range part.to - part.from {
		from := len(all)
		for _, p := range l.job.Places(i) {
			all = append(all, exchange.RankedPlace{Place: p.Index, Score: p.Score})
		}
		l.k.results[part.from+i] = exchange.RankedMember{Best: all[from:len(all):len(all)], Filtered: l.job.Filtered(i)}
	}
	l.at, l.job = l.at+1, nil
}
