package computeclient

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// call is a job with its deadline. It may be asked of several nodes, one after the other.
type call struct {
	packed *form
	// for nodes of the version before, which take no packed candidates
	plain    func() (*form, error)
	deadline time.Time
	named    []*pushmeshv1.Candidate // whose ids are not packed; nil: nobody asks for them
}

// form is a job as one kind of node takes it.
type form struct {
	request *meshv1.RankJobRequest
	size    int // bytes
}

func newCall(ctx context.Context, job *meshv1.RankJobRequest, caller string) (*call, error) {
	c := &call{}
	c.deadline, _ = ctx.Deadline()
	packed := &meshv1.RankJobRequest{Caller: caller, Rank: job.GetRank(), Profiles: job.GetProfiles(), TimeoutUs: job.GetTimeoutUs(), Packed: job.GetPacked()}
	if job.GetCaller() != "" {
		packed.Caller = job.GetCaller()
	}
	if job.GetPacked() == nil {
		c.named = job.GetRank().GetCandidates()
		needs := score.NeedsOf(job.GetRank())
		var err error
		if packed.Packed, err = candidates.Pack(score.Candidates(c.named), &needs); err != nil {
			return nil, err
		}
		packed.Rank = withCandidates(job.GetRank(), nil)
	}
	c.plain = sync.OnceValues(c.unpacked)
	var err error
	c.packed, err = newForm(packed)
	return c, err
}

func newForm(r *meshv1.RankJobRequest) (*form, error) {
	f := &form{request: r, size: proto.Size(r)}
	if f.size > MaxMessage-1024 {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the ranking is larger than 64 MiB")
	}
	return f, nil
}

// withCandidates is a request with others. It shares everything else with it.
func withCandidates(r *pushmeshv1.RankRequest, all []*pushmeshv1.Candidate) *pushmeshv1.RankRequest {
	return &pushmeshv1.RankRequest{
		Candidates: all, Profile: r.GetProfile(), Weighted: r.GetWeighted(), TopK: r.GetTopK(), Expression: r.GetExpression(), Embedding: r.GetEmbedding(), Model: r.GetModel(),
		Filter: r.GetFilter(), Diversify: r.GetDiversify(), Explain: r.GetExplain(), ProfileVector: r.GetProfileVector(), Namespace: r.GetNamespace(),
	}
}

func (c *call) unpacked() (*form, error) {
	r, all := c.packed.request, c.named
	if all == nil {
		rows, err := candidates.Unpack(r.GetPacked())
		if err != nil {
			return nil, err
		}
		all = candidates.Messages(rows)
	}
	return newForm(&meshv1.RankJobRequest{Caller: r.GetCaller(), Rank: withCandidates(r.GetRank(), all), Profiles: r.GetProfiles(), TimeoutUs: r.GetTimeoutUs()})
}

// form for a node that takes packed candidates, or does not.
func (c *call) form(packed bool) (*form, error) {
	if packed {
		return c.packed, nil
	}
	return c.plain()
}

// timed is what to send now of a form: the time that is left goes with it.
func (c *call) timed(f *form, now time.Time) *meshv1.RankJobRequest {
	r := f.request
	if c.deadline.IsZero() {
		return r
	}
	left := uint64(max(c.deadline.Sub(now).Microseconds(), 1))
	us := r.GetTimeoutUs()
	if us == 0 || us > left {
		us = left
	}
	return &meshv1.RankJobRequest{Caller: r.GetCaller(), Rank: r.GetRank(), Profiles: r.GetProfiles(), TimeoutUs: us, Packed: r.GetPacked()}
}

// take the answer to a form. A node that knows nothing of packed candidates has ranked none:
// another one is asked. Ids that were not packed are filled in.
func (c *call) take(f *form, resp *meshv1.RankJobResponse) (*meshv1.RankJobResponse, error) {
	if f.request.GetPacked() == nil {
		return resp, nil
	}
	if resp.GetPacked() != f.request.GetPacked().GetCount() {
		return nil, broken("the node does not take packed candidates")
	}
	if c.named == nil {
		return resp, nil
	}
	for _, r := range resp.GetRank().GetRanked() {
		if int64(r.GetIndex()) >= int64(len(c.named)) {
			return nil, code.New(wirev1.Code_CODE_INTERNAL, "a compute node ranked a candidate that is none of the request's")
		}
		r.Id = c.named[r.GetIndex()].GetId()
	}
	return resp, nil
}

// large jobs go alone, so that small ones don't wait behind their bytes.
func (f *form) large() bool { return f.size > maxBatch }
