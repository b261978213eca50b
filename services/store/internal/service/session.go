package service

import (
	"context"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Bounds of sessions.
const (
	maxName     = 255
	defaultPage = 100
	maxPage     = 1000
)

// session checks a session's key, and that its shard is this store's.
func (s *Service) session(user, name string) error {
	if user == "" || name == "" || len(user) > maxName || len(name) > maxName {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "user and name of a session must have 1 to 255 bytes")
	}
	return s.cfg.Log.Owns(topic.SessionShard(user, name))
}

// AttachSession makes the caller the holder.
func (s *Service) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if err := s.session(req.GetUser(), req.GetName()); err != nil {
		return nil, err
	}
	if err := s.cfg.Log.Sure(ctx, topic.SessionShard(req.GetUser(), req.GetName())); err != nil {
		return nil, err
	}
	if !req.GetPeek() && req.GetEdgeId() == "" {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "edge_id is missing")
	}
	if err := s.quotas.ttl(req); err != nil {
		return nil, err
	}
	if req.GetLeaseMs() > 0 && !req.GetPeek() {
		return s.attachLease(ctx, req)
	}
	resp, err := s.cfg.Backend.AttachSession(ctx, req, s.cfg.Quotas.Quota, s.now())
	return resp, s.refused(ctx, "attach session", s.quotas.refused(err))
}

// surePatience is how long writes wait, all together, for the database to confirm that this store
// owns their shards.
const surePatience = time.Second

// WriteCursors writes what is this store's to write; each other entry is answered with its own
// code. A store that hung may have been sent it before another one took the shard, and wrote what
// the session's holder said since: it must not write this over that.
func (s *Service) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	codes := make([]wirev1.Code, len(req.GetWrites()))
	var writes []*meshv1.SessionWrite
	var at []int
	within, cancel := context.WithTimeout(ctx, surePatience)
	defer cancel()
	for i, w := range req.GetWrites() {
		err := s.session(w.GetUser(), w.GetName())
		if err == nil {
			err = s.cfg.Log.Sure(within, topic.SessionShard(w.GetUser(), w.GetName()))
		}
		if err != nil {
			codes[i] = code.Of(err)
			continue
		}
		writes, at = append(writes, w), append(at, i)
	}
	if len(writes) > 0 {
		written, err := s.cfg.Backend.WriteCursors(ctx, writes, s.now())
		if err != nil {
			return nil, s.refused(ctx, "write cursors", err)
		}
		for i, c := range written {
			codes[at[i]] = c
		}
		s.released(writes, written)
		if slices.ContainsFunc(writes, func(w *meshv1.SessionWrite) bool { return len(w.GetDeadLetters()) > 0 }) {
			s.cfg.Letters()
		}
	}
	return &meshv1.WriteCursorsResponse{Codes: codes}, nil
}

// ListSessions of every shard: sessions of one database are all seen by each of its stores.
func (s *Service) ListSessions(ctx context.Context, req *meshv1.ListSessionsRequest) (*meshv1.ListSessionsResponse, error) {
	page, next, err := s.cfg.Backend.ListSessions(ctx, backend.SessionQuery{
		User: req.GetUser(), Limit: pageSize(req.GetLimit()), PageToken: req.GetPageToken(), Sizes: req.GetSizes(),
	}, s.now())
	if err != nil {
		return nil, s.refused(ctx, "list sessions", err)
	}
	return &meshv1.ListSessionsResponse{Sessions: page, NextPageToken: next}, nil
}

func pageSize(limit uint32) int {
	if limit == 0 {
		return defaultPage
	}
	return int(min(limit, maxPage))
}

// GetSession with cursors.
func (s *Service) GetSession(ctx context.Context, req *meshv1.GetSessionRequest) (*meshv1.GetSessionResponse, error) {
	if err := s.session(req.GetUser(), req.GetName()); err != nil {
		return nil, err
	}
	found, err := s.cfg.Backend.GetSession(ctx, req.GetUser(), req.GetName(), s.now())
	if err != nil {
		return nil, s.refused(ctx, "get session", err)
	}
	return &meshv1.GetSessionResponse{Session: found}, nil
}

// DeleteSession deletes a session; its holder's next write is answered NOT_FOUND.
func (s *Service) DeleteSession(ctx context.Context, req *meshv1.DeleteSessionRequest) (*meshv1.DeleteSessionResponse, error) {
	if err := s.session(req.GetUser(), req.GetName()); err != nil {
		return nil, err
	}
	edge, generation, err := s.cfg.Backend.DeleteSession(ctx, req.GetUser(), req.GetName())
	if err != nil {
		return nil, s.refused(ctx, "delete session", err)
	}
	return &meshv1.DeleteSessionResponse{Edge: edge, Generation: generation}, nil
}

// AdoptSession gives a session to another owner. The shard of the new owner's session may be
// another store's: what is there decides, and that is the database's to say.
func (s *Service) AdoptSession(ctx context.Context, req *meshv1.AdoptSessionRequest) (*meshv1.AdoptSessionResponse, error) {
	if err := s.session(req.GetUser(), req.GetName()); err != nil {
		return nil, err
	}
	if req.GetToUser() == "" || req.GetToName() == "" || len(req.GetToUser()) > maxName || len(req.GetToName()) > maxName {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "to_user and to_name of a session must have 1 to 255 bytes")
	}
	a := backend.Adoption{
		From:   backend.SessionKey{User: req.GetUser(), Name: req.GetName()},
		To:     backend.SessionKey{User: req.GetToUser(), Name: req.GetToName()},
		DryRun: req.GetDryRun(),
	}
	if a.From == a.To || a.From.User == backend.GroupUser || a.To.User == backend.GroupUser {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a session can't be given to its own owner under its own name, and those of groups can't be given away")
	}
	if err := s.cfg.Log.Sure(ctx, topic.SessionShard(a.From.User, a.From.Name)); err != nil {
		return nil, err
	}
	done, err := s.cfg.Backend.AdoptSession(ctx, a, s.now())
	if err != nil {
		return nil, s.refused(ctx, "adopt session", err)
	}
	return &meshv1.AdoptSessionResponse{Edge: done.Edge, Generation: done.Generation, Already: done.Already}, nil
}

// ListDeadLetters of every shard.
func (s *Service) ListDeadLetters(ctx context.Context, req *meshv1.ListDeadLettersRequest) (*meshv1.ListDeadLettersResponse, error) {
	if f := req.GetFilter(); f != "" {
		if err := topic.CheckFilter(f); err != nil {
			return nil, code.New(wirev1.Code_CODE_BAD_TOPIC, err.Error())
		}
	}
	if len(req.GetIds()) > maxPage {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "at most 1,000 ids at a time")
	}
	var found []*meshv1.DeadLetter
	var err error
	if len(req.GetIds()) > 0 {
		found, err = s.cfg.Backend.FindDeadLetters(ctx, req.GetIds())
	} else {
		found, err = s.cfg.Backend.ListDeadLetters(ctx, req.GetFilter(), req.GetAfterId(), pageSize(req.GetLimit()))
	}
	if err != nil {
		return nil, s.refused(ctx, "list dead letters", err)
	}
	return &meshv1.ListDeadLettersResponse{DeadLetters: fitting(found)}, nil
}

// fitting cuts a page so that it keeps below gRPC's limit of 4 MiB; the caller goes on after the
// last id.
func fitting(all []*meshv1.DeadLetter) []*meshv1.DeadLetter {
	size := 0
	for i, d := range all {
		size += len(d.GetBody()) + 1024
		if i > 0 && size > 2<<20 {
			return all[:i]
		}
	}
	return all
}

// DiscardDeadLetters deletes.
func (s *Service) DiscardDeadLetters(ctx context.Context, req *meshv1.DiscardDeadLettersRequest) (*meshv1.DiscardDeadLettersResponse, error) {
	if len(req.GetIds()) > maxPage {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "at most 1,000 ids at a time")
	}
	n, err := s.cfg.Backend.DiscardDeadLetters(ctx, req.GetIds())
	if err != nil {
		return nil, s.refused(ctx, "discard dead letters", err)
	}
	return &meshv1.DiscardDeadLettersResponse{Discarded: uint32(n)}, nil
}
