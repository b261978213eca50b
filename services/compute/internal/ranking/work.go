package ranking

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxCaller is the most bytes of a caller's name.
const maxCaller = 128

// work is a job that was checked and made ready. It is a cpupool.Task.
type work struct {
	req        *meshv1.RankJobRequest
	candidates []score.Candidate
	profiles   []score.Profile
	now        time.Time
	cost       int
	model      uint64 // version
	job        *score.Job

	trial  *trial      // nil: there is no roll-out
	pinned *score.Spec // for when the new version fails; nil: it is not tried, or has failed
	why    error       // it failed
}

// newWork makes a job ready, for the version of the model that a trial says, which may be nil.
// UNAVAILABLE: its model is not here yet.
func newWork(req *meshv1.RankJobRequest, t *trial, parts score.Parts) (*work, error) {
	if len(req.GetCaller()) > maxCaller {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "caller has more than 128 bytes")
	}
	ranked, err := asked(req)
	if err != nil {
		return nil, err
	}
	w := &work{req: req, candidates: ranked, profiles: profiles(req), now: time.Now(), trial: t}
	pinned, err := score.Compile(req.GetRank(), parts)
	if t == nil || !t.next {
		if err != nil {
			return nil, err
		}
		return w, w.begin(pinned)
	}
	return w, w.try(pinned, err, parts)
}

// begin makes the job of a spec.
func (w *work) begin(spec *score.Spec) error {
	r := w.req.GetRank()
	cost := spec.Cost(w.candidates, len(w.profiles))
	if r.GetExplain() && len(w.req.GetProfiles()) == 0 {
		cost += spec.ExplainCost(w.profiles[0].Places(len(w.candidates)))
	}
	job, err := spec.Job(w.candidates, w.profiles, w.now)
	if err != nil {
		return err
	}
	if len(w.req.GetProfiles()) > 0 {
		// of a ranked delivery: one message shall not leave the others of its topic unranked
		job.Lenient()
	}
	w.job, w.model, w.cost = job, spec.Model(), cost
	return nil
}

// asked are the candidates of a job, packed or not.
func asked(req *meshv1.RankJobRequest) ([]score.Candidate, error) {
	switch {
	case req.GetPacked() == nil:
		return score.Candidates(req.GetRank().GetCandidates()), nil
	case len(req.GetRank().GetCandidates()) > 0:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "candidates are packed, or they are not")
	}
	return candidates.Unpack(req.GetPacked())
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
