package service

import (
	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Claims is a node's stream of operations on claims.
func (s *Service) Claims(stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error {
	return s.cfg.Claims.Serve(stream)
}
