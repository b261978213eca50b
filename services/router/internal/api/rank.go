package api

import (
	"context"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/computeclient"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Rank is pushmesh.v1.RankService: it hands jobs to the compute tier.
type Rank struct {
	pushmeshv1.UnimplementedRankServiceServer
	compute *computeclient.Client
}

// NewRank makes the service.
func NewRank(compute *computeclient.Client) *Rank { return &Rank{compute: compute} }

// firstNode is how long a call waits for a compute node while none was ever connected.
const firstNode = time.Second

// Rank implements RankService.
func (r *Rank) Rank(ctx context.Context, req *pushmeshv1.RankRequest) (*pushmeshv1.RankResponse, error) {
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
