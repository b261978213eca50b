package service

import (
	"context"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// inspector is a database that can say what it is set to.
type inspector interface {
	Inspect(ctx context.Context) []*meshv1.InspectedDatabase
}

// Inspect asks the databases. One that does not answer says so in its place.
func (s *Service) Inspect(ctx context.Context, _ *meshv1.InspectRequest) (*meshv1.InspectResponse, error) {
	if db, ok := s.cfg.Backend.(inspector); ok {
		return &meshv1.InspectResponse{Databases: db.Inspect(ctx)}, nil
	}
	return &meshv1.InspectResponse{Databases: []*meshv1.InspectedDatabase{{Name: "home", Kind: "sqlite"}}}, nil
}
