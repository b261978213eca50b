package storeclient

import (
	"context"
	"slices"
	"sync"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// leasesPerCall is the most that a store takes at a time.
const leasesPerCall = 1000

// RenewLeases asks each lease's owner and answers with codes in order. A lease whose owner can't be
// reached, or has changed, has the code UNAVAILABLE: it is renewed again soon, long before it runs
// out.
func (c *Client) RenewLeases(ctx context.Context, req *meshv1.RenewLeasesRequest) *meshv1.RenewLeasesResponse {
	resp := &meshv1.RenewLeasesResponse{Codes: make([]wirev1.Code, len(req.GetLeases()))}
	byOwner := map[string][]int{}
	for i, l := range req.GetLeases() {
		addr, _, err := c.Owner(topic.SessionShard(l.GetUser(), l.GetName()))
		if err != nil {
			resp.Codes[i] = code.Of(err)
			continue
		}
		byOwner[addr] = append(byOwner[addr], i)
	}
	var wg sync.WaitGroup
	for addr, all := range byOwner {
		for which := range slices.Chunk(all, leasesPerCall) {
			wg.Go(func() { c.renewPart(ctx, addr, req, which, resp.GetCodes()) })
		}
	}
	wg.Wait()
	return resp
}

func (c *Client) renewPart(ctx context.Context, addr string, req *meshv1.RenewLeasesRequest, which []int, codes []wirev1.Code) {
	part := &meshv1.RenewLeasesRequest{EdgeId: req.GetEdgeId(), LeaseMs: req.GetLeaseMs()}
	for _, i := range which {
		part.Leases = append(part.Leases, req.GetLeases()[i])
	}
	var resp *meshv1.RenewLeasesResponse
	stub, err := c.dials.to(addr)
	if err == nil {
		resp, err = stub.RenewLeases(ctx, part)
	}
	if err == nil && len(resp.GetCodes()) != len(which) {
		err = code.New(wirev1.Code_CODE_INTERNAL, "the store answered for another number of leases")
	}
	c.noticed(err)
	for k, i := range which {
		switch {
		case err != nil:
			codes[i] = wirev1.Code_CODE_UNAVAILABLE
		case resp.GetCodes()[k] == wirev1.Code_CODE_CONFLICT:
			codes[i] = wirev1.Code_CODE_UNAVAILABLE
			c.Refresh()
		default:
			codes[i] = resp.GetCodes()[k]
		}
	}
}
