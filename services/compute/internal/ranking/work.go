package ranking

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxCaller is the most bytes of a caller's name.
const maxCaller = 128

// work is a job that was checked and made ready.
type work struct {
	req   *meshv1.RankJobRequest
	cost  int
	model uint64 // version
	job   *score.Job
}

func newWork(req *meshv1.RankJobRequest, parts score.Parts) (*work, error) {
	if len(req.GetCaller()) > maxCaller {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "caller has more than 128 bytes")
	}
	r := req.GetRank()
	spec, err := score.Compile(r, parts)
	if err != nil {
		return nil, err
	}
	profiles := profiles(req)
	w := &work{req: req, model: spec.Model(), cost: spec.Cost(r.GetCandidates(), len(profiles))}
	if r.GetExplain() && len(req.GetProfiles()) == 0 {
		w.cost += spec.ExplainCost(profiles[0].Places(len(r.GetCandidates())))
	}
	w.job, err = spec.Job(r.GetCandidates(), profiles, time.Now())
	return w, err
}

// profiles of a job: those it names, or the request's own.
func profiles(req *meshv1.RankJobRequest) []score.Profile {
	r := req.GetRank()
	if len(req.GetProfiles()) == 0 {
		return []score.Profile{{Features: r.GetProfile(), Vector: r.GetProfileVector(), Keep: int(r.GetTopK()), Explain: r.GetExplain()}}
	}
	out := make([]score.Profile, len(req.GetProfiles()))
	for i, p := range req.GetProfiles() {
		out[i] = score.Profile{Features: p.GetFeatures(), Vector: p.GetVector(), Keep: int(p.GetTopK()), Candidates: p.GetCandidates()}
	}
	return out
}

// response of a job that is done.
func (w *work) response(times cpupool.Times) *meshv1.RankJobResponse {
	resp := &meshv1.RankJobResponse{WaitedUs: uint64(times.Waited.Microseconds()), RanUs: uint64(times.Ran.Microseconds())}
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
		all[i].Id, all[i].Score, all[i].Index = r.GetCandidates()[p.Index].GetId(), p.Score, p.Index
		if r.GetExplain() {
			all[i].Contributions = explained[i]
		}
		out.Ranked[i] = &all[i]
	}
	return out
}
