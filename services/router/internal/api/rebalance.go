package api

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

const (
	defaultWithin = 30 * time.Second
	maxWithin     = time.Hour
)

// Homes says where subscribers are (switchboard.Switchboard).
type Homes interface{ Homes() []interest.Home }

// Rebalance implements MeshService. Where the edge does not answer in time the call fails,
// retryable: whether it heard is not known then, and asking again does no harm but that some more
// may be told to go.
func (m *Mesh) Rebalance(ctx context.Context, req *pushmeshv1.RebalanceRequest) (*pushmeshv1.RebalanceResponse, error) {
	within := defaultWithin
	if d := req.GetWithin().AsDuration(); d != 0 {
		within = d
	}
	switch share := req.GetShare(); {
	case req.GetEdge() == "":
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "edge is empty: name one, as MeshService.Nodes lists them")
	case !(share > 0 && share <= 1):
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "share must be above 0 and at most 1")
	case !req.GetWithin().IsValid() && req.GetWithin() != nil || within < 0 || within > maxWithin:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "within must be at most an hour")
	}
	if err := movable(m.homes.Homes(), req.GetEdge()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := askEdge(ctx, m.via, req.GetEdge(), &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Rebalance{Rebalance: &meshv1.RebalanceConnections{
		Share: req.GetShare(), WithinMs: uint32(within.Milliseconds()),
	}}})
	if err != nil {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, askTimeout, "edge "+req.GetEdge()+" did not answer")
	}
	audit.After(ctx, map[string]any{"connections": reply.GetLeaving(), "share": req.GetShare(), "within": within.String()})
	return &pushmeshv1.RebalanceResponse{Connections: reply.GetLeaving()}, nil
}

// movable says why connections of an edge can't go to others.
func movable(homes []interest.Home, edge string) error {
	found, drains, others := false, false, 0
	for _, h := range homes {
		switch {
		case h.ID == edge:
			found, drains = true, h.Draining
		case !h.Draining:
			others++
		}
	}
	switch {
	case !found:
		return code.New(wirev1.Code_CODE_NOT_FOUND, "no edge "+edge+" is alive")
	case drains:
		return code.New(wirev1.Code_CODE_CONFLICT, "edge "+edge+" is draining: it sends all of its connections to other edges already")
	case others == 0:
		return code.New(wirev1.Code_CODE_CONFLICT, "there is no other edge that could take the connections")
	}
	return nil
}
