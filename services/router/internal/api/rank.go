package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Rank is pushmesh.v1.RankService: it hands jobs to the compute tier, and keeps models in the
// store.
type Rank struct {
	pushmeshv1.UnimplementedRankServiceServer
	compute    *computeclient.Client
	policies   func() *policy.Table
	models     ModelStore
	namespaces *Namespace
	turns      *modelTurns
}

// NewRank makes the service. policies are those of now.
func NewRank(compute *computeclient.Client, policies func() *policy.Table, models ModelStore, namespaces *Namespace) *Rank {
	return &Rank{compute: compute, policies: policies, models: models, namespaces: namespaces, turns: newModelTurns()}
}

// firstNode is how long a call waits for a compute node while none was ever connected.
const firstNode = time.Second

// Rank implements RankService.
func (r *Rank) Rank(ctx context.Context, req *pushmeshv1.RankRequest) (*pushmeshv1.RankResponse, error) {
	req, err := r.filled(req)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, firstNode)
	r.compute.Begun(soon)
	cancel()
	resp, err := r.compute.Do(ctx, &meshv1.RankJobRequest{Rank: req})
	if errors.Is(err, context.DeadlineExceeded) {
		err = code.New(wirev1.Code_CODE_EXPIRED, "the deadline came before the ranking was done")
	}
	if err != nil {
		return nil, err
	}
	return resp.GetRank(), nil
}

// filled has the scorer of the rank policy that a request names, where it has none of its own, and
// with it the policy's filter and diversify where it has none of its own either. One with a scorer
// of its own names no namespace: compute takes those that do for the namespace's calls. The request
// is not changed.
func (r *Rank) filled(req *pushmeshv1.RankRequest) (*pushmeshv1.RankRequest, error) {
	prefix := req.GetNamespace()
	full := &pushmeshv1.RankRequest{
		Candidates: req.GetCandidates(), Profile: req.GetProfile(), ProfileVector: req.GetProfileVector(), TopK: req.GetTopK(), Explain: req.GetExplain(),
		Weighted: req.GetWeighted(), Expression: req.GetExpression(), Embedding: req.GetEmbedding(), Model: req.GetModel(),
		Filter: req.GetFilter(), Diversify: req.GetDiversify(),
	}
	if prefix == "" || req.GetWeighted() != nil || req.GetExpression() != nil || req.GetEmbedding() != nil || req.GetModel() != nil {
		if req.GetModel().GetNextVersion() != 0 {
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "model: next_version is for rank policies; a call of its own names one version")
		}
		return full, nil
	}
	table := r.policies()
	if why := table.Known(); why != nil {
		return nil, why
	}
	ns := table.Of(prefix)
	if ns == nil {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, fmt.Sprintf("no namespace %.300q", prefix))
	}
	if ns.Refusal != nil {
		return nil, ns.Refusal
	}
	rank := ns.Rank
	if rank == nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("namespace %q has no rank policy, and the request no scorer", prefix))
	}
	full.Weighted, full.Expression, full.Embedding, full.Model = rank.GetWeighted(), rank.GetExpression(), rank.GetEmbedding(), rank.GetModel()
	full.Filter, full.Namespace = cmp.Or(req.GetFilter(), rank.GetFilter()), prefix
	if full.Diversify == nil {
		full.Diversify = rank.GetDiversify()
	}
	return full, nil
}
