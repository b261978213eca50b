package ranking

import (
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// response of a job that is done.
func (w *work) response(times cpupool.Times) *meshv1.RankJobResponse {
	resp := &meshv1.RankJobResponse{WaitedUs: uint64(times.Waited.Microseconds()), RanUs: uint64(times.Ran.Microseconds()), Packed: w.req.GetPacked().GetCount()}
	if len(w.req.GetProfiles()) == 0 {
		resp.Rank = w.ranked()
		return resp
	}
	for i := range w.req.GetProfiles() {
		places := w.job.Places(i)
		p := &meshv1.RankedPlaces{Places: make([]uint32, len(places)), Scores: make([]float64, len(places)), Filtered: w.job.Filtered(i)}
		for k, place := range places {
			p.Places[k], p.Scores[k] = place.Index, place.Score
		}
		resp.Profiles = append(resp.Profiles, p)
	}
	return resp
}

func (w *work) ranked() *pushmeshv1.RankResponse {
	r := w.req.GetRank()
	places, explained := w.job.Places(0), w.job.Explained(0)
	all := make([]pushmeshv1.RankResponse_Ranked, len(places))
	out := &pushmeshv1.RankResponse{Ranked: make([]*pushmeshv1.RankResponse_Ranked, len(places)), ModelVersion: w.model, Filtered: uint32(len(w.job.Filtered(0)))}
	for i, p := range places {
		all[i].Score, all[i].Index = p.Score, p.Index
		if w.req.GetPacked() == nil {
			all[i].Id = w.candidates[p.Index].ID
		}
		if r.GetExplain() {
			all[i].Contributions = explained[i]
		}
		out.Ranked[i] = &all[i]
	}
	return out
}
