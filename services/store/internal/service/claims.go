package service

import (
	"context"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Claims is a node's stream of operations on claims.
func (s *Service) Claims(stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error {
	return s.cfg.Claims.Serve(stream)
}

// ListClaims tells a page of places.
func (s *Service) ListClaims(ctx context.Context, req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
	resp, err := s.cfg.Claims.List(ctx, req)
	if err != nil {
		return nil, s.refused(ctx, "list claims", err)
	}
	return resp, nil
}
