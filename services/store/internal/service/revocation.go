package service

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/revocation"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxRevocations is the most of one page.
const maxRevocations = 1000

// Revoke keeps a revocation, and tells every edge.
func (s *Service) Revoke(ctx context.Context, req *meshv1.StoreServiceRevokeRequest) (*meshv1.StoreServiceRevokeResponse, error) {
	now, r := s.cfg.Now(), proto.CloneOf(req.GetRevocation())
	if err := revocation.Check(r, now); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	kept, err := s.cfg.Backend.Revoke(ctx, r, uint64(now.UnixMicro()))
	if err != nil {
		return nil, s.refused(ctx, "revoke", err)
	}
	s.cfg.Revoked(kept.GetVersion())
	return &meshv1.StoreServiceRevokeResponse{Revocation: kept}, nil
}

// ListRevocations answers with a page.
func (s *Service) ListRevocations(ctx context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error) {
	limit := req.GetLimit()
	if limit == 0 || limit > maxRevocations {
		limit = maxRevocations
	}
	page, err := s.cfg.Backend.ListRevocations(ctx, req.GetHaveVersion(), int(limit), s.now())
	if err != nil {
		return nil, s.refused(ctx, "list revocations", err)
	}
	resp := &meshv1.StoreServiceListRevocationsResponse{Version: page.Version, More: page.More, Anew: page.Anew}
	for i, r := range page.All {
		resp.Revocations = append(resp.Revocations, r.Revocation)
		if r.Restored {
			resp.Restored = append(resp.Restored, uint32(i))
		}
	}
	return resp, nil
}

// Restore ends a revocation, and tells every edge.
func (s *Service) Restore(ctx context.Context, req *meshv1.StoreServiceRestoreRequest) (*meshv1.StoreServiceRestoreResponse, error) {
	if err := revocation.CheckNames(req.GetRevocation()); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	}
	version, err := s.cfg.Backend.Restore(ctx, req.GetRevocation(), s.now())
	if err != nil {
		return nil, s.refused(ctx, "restore", err)
	}
	s.cfg.Revoked(version)
	return &meshv1.StoreServiceRestoreResponse{}, nil
}
