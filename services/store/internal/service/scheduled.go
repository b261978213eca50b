package service

import (
	"context"
	"errors"
	"slices"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// CancelScheduled withdraws a message of an owned shard. What is no longer in the schedule was
// appended or cancelled in the transaction that took it out, and that left a key.
func (s *Service) CancelScheduled(ctx context.Context, req *meshv1.StoreServiceCancelScheduledRequest) (*meshv1.StoreServiceCancelScheduledResponse, error) {
	if len(req.GetMessageId()) != 16 {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "message_id must have 16 bytes")
	}
	id := [16]byte(req.GetMessageId())
	found, err := s.cfg.Backend.FindScheduled(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return s.afterSchedule(ctx, id)
	case err != nil:
		return nil, s.refused(ctx, "cancel scheduled", err)
	case req.GetRestricted() && !slices.ContainsFunc(req.GetFilters(), func(filter string) bool { return topic.Match(filter, found.Topic) }):
		return &meshv1.StoreServiceCancelScheduledResponse{Code: wirev1.Code_CODE_NOT_FOUND}, nil
	case s.cfg.Log.Owns(found.Shard) != nil:
		return &meshv1.StoreServiceCancelScheduledResponse{Code: wirev1.Code_CODE_UNAVAILABLE}, nil
	}
	r, err := s.cfg.Log.Cancel(ctx, &found)
	switch {
	case code.Of(err) == wirev1.Code_CODE_CONFLICT: // the shard was lost meanwhile
		return &meshv1.StoreServiceCancelScheduledResponse{Code: wirev1.Code_CODE_UNAVAILABLE}, nil
	case err != nil:
		return nil, s.refused(ctx, "cancel scheduled", err)
	}
	return cancelled(r.GetEpoch(), r.GetSeq()), nil
}

// afterSchedule says what became of a message that is not in the schedule.
func (s *Service) afterSchedule(ctx context.Context, id [16]byte) (*meshv1.StoreServiceCancelScheduledResponse, error) {
	keys, err := s.cfg.Backend.Keys(ctx, []backend.KeyHash{shardlog.ScheduleKey(id)}, s.now())
	if err != nil {
		return nil, s.refused(ctx, "cancel scheduled", err)
	}
	if len(keys) == 0 {
		return &meshv1.StoreServiceCancelScheduledResponse{Code: wirev1.Code_CODE_NOT_FOUND}, nil
	}
	return cancelled(keys[0].Epoch, keys[0].Seq), nil
}

// cancelled: a seq says that the message was appended there before it could be cancelled.
func cancelled(epoch, seq uint64) *meshv1.StoreServiceCancelScheduledResponse {
	if seq == 0 {
		return &meshv1.StoreServiceCancelScheduledResponse{Code: wirev1.Code_CODE_OK}
	}
	return &meshv1.StoreServiceCancelScheduledResponse{Code: wirev1.Code_CODE_CONFLICT, Epoch: epoch, Seq: seq}
}
