package service

import (
	"context"
	"errors"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// AcceptServer has the log go on, or begin anew, on a database that was restored or promoted.
func (s *Service) AcceptServer(ctx context.Context, req *meshv1.StoreServiceAcceptServerRequest) (*meshv1.StoreServiceAcceptServerResponse, error) {
	db, ok := s.cfg.Backend.(backend.Promotable)
	if !ok {
		return nil, code.New(wirev1.Code_CODE_UNSUPPORTED, "the database is a file: after putting a copy back, start the store with --new-epoch")
	}
	var epoch uint64
	switch req.GetRequest().GetEpoch() {
	case pushmeshv1.AcceptServerRequest_EPOCH_SAME:
	case pushmeshv1.AcceptServerRequest_EPOCH_NEW:
		epoch = s.now()
	default:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "epoch must be EPOCH_SAME, where nothing is missing, or EPOCH_NEW")
	}
	done, err := db.AcceptServer(ctx, req.GetRequest().GetDatabase(), epoch)
	if errors.Is(err, backend.ErrConflict) {
		return nil, code.New(wirev1.Code_CODE_CONFLICT, err.Error())
	}
	if err != nil {
		return nil, s.refused(ctx, "accept the server", err)
	}
	s.cfg.Logger.Warn("an operator has accepted the database's server", "database", done.Database,
		"system_before", done.Before.System, "timeline_before", done.Before.Timeline, "system", done.After.System, "timeline", done.After.Timeline,
		"epoch", epoch, "shards", done.Shards)
	return &meshv1.StoreServiceAcceptServerResponse{Response: &pushmeshv1.AcceptServerResponse{
		Database: done.Database, StoreId: s.cfg.StoreID, Before: named(done.Before), After: named(done.After), Epoch: epoch, Shards: uint32(done.Shards),
	}}, nil
}

func named(s backend.Server) *pushmeshv1.DatabaseServer {
	return &pushmeshv1.DatabaseServer{System: s.System, Timeline: s.Timeline}
}
