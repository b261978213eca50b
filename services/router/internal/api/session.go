package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/features"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// SessionStore is what Session needs of the store (storeclient.Client).
type SessionStore interface {
	ListSessions(ctx context.Context, req *meshv1.ListSessionsRequest) (*meshv1.ListSessionsResponse, error)
	AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error)
	GetSession(ctx context.Context, req *meshv1.GetSessionRequest) (*meshv1.GetSessionResponse, error)
	DeleteSession(ctx context.Context, req *meshv1.DeleteSessionRequest) (*meshv1.DeleteSessionResponse, error)
	AdoptSession(ctx context.Context, req *meshv1.AdoptSessionRequest) (*meshv1.AdoptSessionResponse, error)
	Heads(ctx context.Context, topics, filters []string, limit uint32) ([]*meshv1.Head, error)
}

const (
	defaultSessions = 100
	maxSessions     = 1000
	// maxReason is the most bytes of what a closed connection is told.
	maxReason = 1024
)

// Session is pushmesh.v1.SessionService.
type Session struct {
	pushmeshv1.UnimplementedSessionServiceServer
	store SessionStore
	edges KnownEdges
	via   Requester
}

// KnownEdges are edges of which it is known whether they are all (switchboard.Switchboard).
type KnownEdges interface {
	Edges
	Check() error
}

// NewSession makes the service.
func NewSession(store SessionStore, edges KnownEdges, via Requester) *Session {
	return &Session{store: store, edges: edges, via: via}
}

// List implements SessionService.
func (s *Session) List(ctx context.Context, req *pushmeshv1.SessionServiceListRequest) (*pushmeshv1.SessionServiceListResponse, error) {
	limit := req.GetLimit()
	switch {
	case limit == 0:
		limit = defaultSessions
	case limit > maxSessions:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("limit is %d, at most 1,000", req.GetLimit()))
	}
	resp, err := s.store.ListSessions(ctx, &meshv1.ListSessionsRequest{User: req.GetUser(), Limit: limit, PageToken: req.GetPageToken(), Sizes: req.GetSizes()})
	if err != nil {
		return nil, code.From(err)
	}
	return &pushmeshv1.SessionServiceListResponse{Sessions: resp.GetSessions(), NextPageToken: resp.GetNextPageToken()}, nil
}

// Get implements SessionService. Heads are those of now, and read after the cursors: what is
// published or ACKed in between counts as lag.
func (s *Session) Get(ctx context.Context, req *pushmeshv1.SessionServiceGetRequest) (*pushmeshv1.SessionServiceGetResponse, error) {
	resp, err := s.store.GetSession(ctx, &meshv1.GetSessionRequest{User: req.GetUser(), Name: req.GetName()})
	if err != nil {
		return nil, code.From(err)
	}
	session := resp.GetSession()
	s.depth(ctx, session)
	if len(session.GetCursors()) == 0 {
		return &pushmeshv1.SessionServiceGetResponse{Session: session}, nil
	}
	// A peek tells what is ACKed above the floor.
	peek, err := s.store.AttachSession(ctx, &meshv1.AttachSessionRequest{User: req.GetUser(), Name: req.GetName(), Peek: true})
	if err != nil {
		return nil, code.From(err)
	}
	topics := make([]string, 0, len(peek.GetCursors()))
	for _, c := range peek.GetCursors() {
		topics = append(topics, c.GetTopic())
	}
	heads, err := s.store.Heads(ctx, topics, nil, 0)
	if err != nil {
		return nil, code.From(err)
	}
	byTopic := make(map[string]*meshv1.Head, len(heads))
	for _, h := range heads {
		byTopic[h.GetTopic()] = h
	}
	session.Cursors = session.Cursors[:0]
	for _, c := range peek.GetCursors() {
		session.Cursors = append(session.Cursors, cursor(c, byTopic[c.GetTopic()]))
	}
	return &pushmeshv1.SessionServiceGetResponse{Session: session}, nil
}

// depth fills in what waits at the session's edge. An edge that does not answer is no reason to
// tell nothing.
func (s *Session) depth(ctx context.Context, session *pushmeshv1.Session) {
	if bus.CheckID(session.GetEdge()) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := askEdge(ctx, s.via, session.GetEdge(), &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_SessionQueue{
		SessionQueue: &meshv1.SessionQueue{User: session.GetUser(), Name: session.GetName()},
	}})
	if err == nil {
		session.QueuedMessages, session.QueuedBytes = reply.GetQueue().GetMessages(), reply.GetQueue().GetBytes()
	}
}

// cursor fills in head and lag. A cursor of an epoch that is gone has everything before it.
func cursor(c *meshv1.SessionCursor, head *meshv1.Head) *pushmeshv1.Cursor {
	out := &pushmeshv1.Cursor{Topic: c.GetTopic(), Epoch: c.GetEpoch(), Floor: c.GetFloor(), Head: head.GetHead()}
	if head.GetEpoch() != c.GetEpoch() {
		out.Lag = head.GetHead()
		return out
	}
	done := c.GetFloor()
	for i := 0; i+1 < len(c.GetAcked()); i += 2 {
		done += c.GetAcked()[i+1] - c.GetAcked()[i] + 1
	}
	if head.GetHead() > done {
		out.Lag = head.GetHead() - done
	}
	return out
}

// Delete implements SessionService. Its holder is told; one whose edge does not answer learns it
// with its next write.
func (s *Session) Delete(ctx context.Context, req *pushmeshv1.SessionServiceDeleteRequest) (*pushmeshv1.SessionServiceDeleteResponse, error) {
	s.tellBefore(ctx, req.GetUser(), req.GetName())
	deleted, err := s.store.DeleteSession(ctx, &meshv1.DeleteSessionRequest{User: req.GetUser(), Name: req.GetName()})
	if err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, nil)
	if bus.CheckID(deleted.GetEdge()) == nil {
		s.tellVoid(ctx, deleted.GetEdge(), &meshv1.YieldSession{
			User: req.GetUser(), Name: req.GetName(), Generation: deleted.GetGeneration() + 1, Code: wirev1.Code_CODE_NOT_FOUND,
		})
	}
	return &pushmeshv1.SessionServiceDeleteResponse{}, nil
}

// tellBefore tells the audit of a session that is about to be deleted.
func (s *Session) tellBefore(ctx context.Context, user, name string) {
	if !audit.Asked(ctx) {
		return
	}
	once, cancel := context.WithTimeout(ctx, readBefore)
	defer cancel()
	there, err := s.store.GetSession(once, &meshv1.GetSessionRequest{User: user, Name: name})
	switch {
	case err == nil:
		audit.Before(ctx, there.GetSession())
	case code.Of(err) == wirev1.Code_CODE_NOT_FOUND:
		audit.Before(ctx, nil)
	default:
		audit.Before(ctx, err)
	}
}

// voidTries is how often an edge that does not answer is told that a session was deleted, or is
// another owner's.
const voidTries = 3

// tellVoid tells the edge that held a session that its hold is void. So it is whatever becomes of
// that.
func (s *Session) tellVoid(ctx context.Context, edge string, y *meshv1.YieldSession) {
	for range voidTries {
		once, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := askEdge(once, s.via, edge, &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Yield{Yield: y}})
		cancel()
		if err == nil || errors.Is(err, bus.ErrNobody) || ctx.Err() != nil {
			return
		}
	}
}

// Disconnect implements SessionService: every live edge is asked. A router that does not know them
// all refuses, retryable. Where one does not answer the call fails, retryable, since connections
// may be left.
func (s *Session) Disconnect(ctx context.Context, req *pushmeshv1.DisconnectRequest) (*pushmeshv1.DisconnectResponse, error) {
	if req.GetClientId() == "" && req.GetUser() == "" {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "give a client_id, a user, or both: without them every connection would match")
	}
	if _, known := wirev1.Code_name[int32(req.GetCode())]; !known {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("code %d is not known: take one of pushmesh.wire.v1.Code", req.GetCode()))
	}
	if len(req.GetReason()) > maxReason {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("reason has %d bytes, at most 1,024", len(req.GetReason())))
	}
	resp := &pushmeshv1.DisconnectResponse{}
	err := s.everyEdge(ctx, &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Disconnect{Disconnect: &meshv1.DisconnectClients{
		ClientId: req.GetClientId(), User: req.GetUser(), Code: req.GetCode(), Reason: req.GetReason(),
	}}}, func(reply *meshv1.EdgeReply) { resp.Disconnected += reply.GetDisconnected() }, "some connections may still be open")
	audit.After(ctx, map[string]any{"disconnected": resp.GetDisconnected(), "code": code.Name(req.GetCode()), "reason": req.GetReason()})
	return resp, err
}

// SetProfile implements SessionService. As Disconnect, it refuses or fails, retryable, where
// connections may be left.
func (s *Session) SetProfile(ctx context.Context, req *pushmeshv1.SetProfileRequest) (*pushmeshv1.SetProfileResponse, error) {
	if req.GetClientId() == "" && req.GetUser() == "" {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "give a client_id, a user, or both: without them every connection would match")
	}
	if err := features.Check(req.GetProfile(), req.GetVector(), features.ProfileDimensions); err != nil {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "profile: "+err.Error())
	}
	resp := &pushmeshv1.SetProfileResponse{}
	err := s.everyEdge(ctx, &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Profile{Profile: &meshv1.ReplaceProfile{
		ClientId: req.GetClientId(), User: req.GetUser(), Profile: req.GetProfile(), Vector: req.GetVector(),
	}}}, func(reply *meshv1.EdgeReply) { resp.Connections += reply.GetProfiled() }, "some connections may still have the earlier profile")
	audit.After(ctx, map[string]any{"connections": resp.GetConnections(), "profile": req.GetProfile(), "vector_dimensions": len(req.GetVector())})
	return resp, err
}

// everyEdge asks every live edge and hands take the answers, one at a time. Where they are not all
// known, or one does not answer, it is an error, retryable, that tells the risk.
func (s *Session) everyEdge(ctx context.Context, ask *meshv1.EdgeRequest, take func(*meshv1.EdgeReply), risk string) error {
	if err := s.edges.Check(); err != nil {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, askTimeout, "not every edge is known yet: "+err.Error())
	}
	requests := map[interest.Edge]*meshv1.EdgeRequest{}
	for _, e := range s.edges.Edges() {
		requests[e] = ask
	}
	if silent := askEdges(ctx, s.via, requests, func(_ interest.Edge, reply *meshv1.EdgeReply) { take(reply) }); silent > 0 {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, askTimeout, "some edges did not answer: "+risk)
	}
	return nil
}
