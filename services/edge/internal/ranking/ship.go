package ranking

import (
	"context"
	"sync"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// ship has compute nodes score the ranking, all parts at once.
func (k *ranking) ship() {
	if again := k.encoded * (len(k.parts) - 1); !k.r.more(k, again) {
		k.fail(overloaded())
		return
	}
	req := request(k.asked.Policy)
	packed := sync.OnceValues(func() (*meshv1.PackedCandidates, error) { return candidates.Pack(k.candidates, &k.scoring.needs) })
	for _, p := range k.parts {
		k.withVector(k.distinct[p.from:p.to])
		job := &meshv1.RankJobRequest{Rank: req, Profiles: make([]*meshv1.RankProfile, 0, p.to-p.from)}
		for _, d := range k.distinct[p.from:p.to] {
			job.Profiles = append(job.Profiles, &meshv1.RankProfile{Features: d.Features, Vector: d.Vector, TopK: uint32(d.Keep), Candidates: d.Candidates})
		}
		k.r.group.Go("edge-ranker-job", func(context.Context) {
			var resp *meshv1.RankJobResponse
			// not by the ranker's goroutine: it takes a millisecond where there are 10,000
			all, err := packed()
			if err == nil {
				job.Packed = all
				resp, err = k.r.cfg.Compute.Do(k.ctx, job)
			}
			k.r.stages.Do(func() { k.shippedPart(p, resp, err) })
		})
	}
}

// shippedPart takes the answer of one part. The last one answers the ranking; one that failed, for
// all.
func (k *ranking) shippedPart(p part, resp *meshv1.RankJobResponse, err error) {
	if err == nil {
		err = k.take(p, resp)
	}
	if err != nil {
		k.fail(err)
		return
	}
	if k.left--; k.left == 0 {
		k.finish()
	}
}

var errAnswer = code.New(wirev1.Code_CODE_INTERNAL, "a compute node's answer does not match the ranking")

// take the results of a part, unless they are not for what was asked.
func (k *ranking) take(p part, resp *meshv1.RankJobResponse) error {
	if len(resp.GetProfiles()) != p.to-p.from {
		return errAnswer
	}
	for i, one := range resp.GetProfiles() {
		if len(one.GetPlaces()) != len(one.GetScores()) {
			return errAnswer
		}
		best := make([]exchange.RankedPlace, len(one.GetPlaces()))
		for j, place := range one.GetPlaces() {
			if int(place) >= len(k.candidates) {
				return errAnswer
			}
			best[j] = exchange.RankedPlace{Place: place, Score: one.GetScores()[j]}
		}
		for _, place := range one.GetFiltered() {
			if int(place) >= len(k.candidates) {
				return errAnswer
			}
		}
		k.results[p.from+i] = exchange.RankedMember{Best: best, Filtered: one.GetFiltered()}
	}
	return nil
}
