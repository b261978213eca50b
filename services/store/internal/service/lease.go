package service

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/lease"
)

// maxLease bounds how long a dead holder keeps others out.
const maxLease = time.Minute

// busyAfter is when to come back while another is being granted the lease.
const busyAfter = 100 * time.Millisecond

// renewWithin bounds one call of RenewLeases: edges ask thrice in a lease's time.
const renewWithin = 700 * time.Millisecond

// Leases run by the monotonic clock, as edges count them: the database's time may step, and then
// one session would have two holders, or a dead one for long.

// attachLease attaches where no other edge has a lease that runs.
func (s *Service) attachLease(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	length := time.Duration(req.GetLeaseMs()) * time.Millisecond
	if length > maxLease {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "lease_ms is more than a minute")
	}
	k := lease.Key{User: req.GetUser(), Name: req.GetName()}
	claim := s.cfg.Log.Ownership(topic.SessionShard(k.User, k.Name))
	verdict, holder, last := s.leases.Begin(time.Now(), k, req.GetEdgeId(), claim)
	switch verdict {
	case lease.OtherEdge:
		return &meshv1.AttachSessionResponse{PreviousEdge: holder}, nil
	case lease.Busy:
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, busyAfter, "the lease is being granted")
	}
	peek, err := s.cfg.Backend.AttachSession(ctx, &meshv1.AttachSessionRequest{User: k.User, Name: k.Name, Peek: true}, backend.Quota{}, s.now())
	if err != nil {
		s.leases.Abort(k)
		return nil, s.refused(ctx, "look at lease", err)
	}
	if other := peek.GetPreviousEdge(); other != "" && other != req.GetEdgeId() && peek.GetGeneration() != last {
		// Another owner of this shard granted it, and may have renewed it until a moment ago.
		s.leases.Granted(k, other, claim, peek.GetGeneration(), time.Now().Add(length))
		return &meshv1.AttachSessionResponse{PreviousEdge: other}, nil
	}
	resp, err := s.cfg.Backend.AttachSession(ctx, req, s.cfg.Quotas.Quota, s.now())
	if err != nil {
		s.leases.Abort(k)
		return nil, s.refused(ctx, "attach with lease", s.quotas.refused(err))
	}
	s.leases.Granted(k, req.GetEdgeId(), claim, resp.GetGeneration(), time.Now().Add(length))
	return resp, nil
}

// RenewLeases keeps leases. What this owner does not know, an earlier owner of the shard may have
// granted: the generation says.
func (s *Service) RenewLeases(ctx context.Context, req *meshv1.RenewLeasesRequest) (*meshv1.RenewLeasesResponse, error) {
	length := time.Duration(req.GetLeaseMs()) * time.Millisecond
	if length <= 0 || length > maxLease || req.GetEdgeId() == "" || len(req.GetLeases()) > maxPage {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a renewal must name an edge, at most 1,000 leases, and a length of at most a minute")
	}
	resp := &meshv1.RenewLeasesResponse{}
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	for _, l := range req.GetLeases() {
		resp.Codes = append(resp.Codes, code.Of(s.renew(ctx, req.GetEdgeId(), l, length)))
	}
	return resp, nil
}

func (s *Service) renew(ctx context.Context, edge string, l *meshv1.RenewLeasesRequest_Lease, length time.Duration) error {
	if err := s.session(l.GetUser(), l.GetName()); err != nil {
		return err
	}
	// Who may have lost the shard must not lengthen what the next owner has granted to another.
	if err := s.cfg.Log.Sure(ctx, topic.SessionShard(l.GetUser(), l.GetName())); err != nil {
		return err
	}
	k := lease.Key{User: l.GetUser(), Name: l.GetName()}
	claim := s.cfg.Log.Ownership(topic.SessionShard(k.User, k.Name))
	if s.leases.Renew(k, edge, claim, l.GetGeneration(), time.Now().Add(length)) {
		return nil
	}
	switch verdict, _, _ := s.leases.Begin(time.Now(), k, edge, claim); verdict {
	case lease.OtherEdge:
		return code.New(wirev1.Code_CODE_SESSION_TAKEN_OVER, "another edge has the lease")
	case lease.Busy:
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, busyAfter, "the lease is being granted")
	}
	peek, err := s.cfg.Backend.AttachSession(ctx, &meshv1.AttachSessionRequest{User: k.User, Name: k.Name, Peek: true}, backend.Quota{}, s.now())
	switch {
	case err != nil:
		s.leases.Abort(k)
		return s.refused(ctx, "look at lease", err)
	case !peek.GetResumed():
		s.leases.Abort(k)
		return code.New(wirev1.Code_CODE_NOT_FOUND, "the session is gone")
	case peek.GetGeneration() != l.GetGeneration():
		s.leases.Abort(k)
		return code.New(wirev1.Code_CODE_SESSION_TAKEN_OVER, "another edge has had the lease since")
	}
	s.leases.Granted(k, edge, claim, l.GetGeneration(), time.Now().Add(length))
	return nil
}

// released ends the leases of those who detached.
func (s *Service) released(writes []*meshv1.SessionWrite, codes []wirev1.Code) {
	for i, w := range writes {
		if w.GetDetach() && codes[i] == wirev1.Code_CODE_OK {
			s.leases.Release(lease.Key{User: w.GetUser(), Name: w.GetName()}, w.GetGeneration())
		}
	}
}
