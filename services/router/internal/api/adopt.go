package api

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// Who has proven nothing; sessions of such users may be given away.
const (
	clientUser  = "client:"
	backendUser = "backend:"
)

// maxSessionName is the most bytes that a Hello may name a session with.
const maxSessionName = 255

// flushTimeout is how long the edge of a session's holder has to store what was ACKed.
const flushTimeout = time.Second

// Adopt implements SessionService. Its holder's ACKs are stored and its connection is closed before
// the session changes its owner: what that misses comes again.
func (s *Session) Adopt(ctx context.Context, req *pushmeshv1.AdoptRequest) (*pushmeshv1.AdoptResponse, error) {
	ask := &meshv1.AdoptSessionRequest{User: req.GetUser(), Name: req.GetName(), ToUser: req.GetToUser(), ToName: req.GetToName(), DryRun: true}
	if ask.GetToName() == "" {
		ask.ToName = ask.GetName()
	}
	if err := checkAdoption(ask); err != nil {
		return nil, err
	}
	found, err := s.store.AdoptSession(ctx, ask)
	if err != nil {
		return nil, code.From(err)
	}
	if req.GetDryRun() || found.GetAlready() {
		return &pushmeshv1.AdoptResponse{Already: found.GetAlready()}, nil
	}
	if bus.CheckID(found.GetEdge()) == nil {
		once, cancel := context.WithTimeout(ctx, flushTimeout)
		// one that does not answer is told again below
		_, _ = askEdge(once, s.via, found.GetEdge(), yielding(ask, 0))
		cancel()
	}
	ask.DryRun = false
	done, err := s.store.AdoptSession(ctx, ask)
	if err != nil {
		return nil, code.From(err)
	}
	audit.Before(ctx, map[string]any{"user": ask.GetUser(), "name": ask.GetName()})
	audit.After(ctx, map[string]any{"user": ask.GetToUser(), "name": ask.GetToName()})
	if bus.CheckID(done.GetEdge()) == nil {
		s.tellVoid(ctx, done.GetEdge(), yielding(ask, done.GetGeneration()).GetYield())
	}
	return &pushmeshv1.AdoptResponse{Already: done.GetAlready()}, nil
}

func yielding(ask *meshv1.AdoptSessionRequest, generation uint64) *meshv1.EdgeRequest {
	return &meshv1.EdgeRequest{Request: &meshv1.EdgeRequest_Yield{Yield: &meshv1.YieldSession{
		User: ask.GetUser(), Name: ask.GetName(), Generation: generation,
	}}}
}

// checkAdoption refuses owners that may not give or get sessions.
func checkAdoption(ask *meshv1.AdoptSessionRequest) error {
	invalid := func(why string) error { return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, why) }
	from := ask.GetUser()
	switch {
	case ask.GetName() == "":
		return invalid("the name of the session is missing")
	case len(ask.GetToName()) > maxSessionName || strings.ContainsFunc(ask.GetToName(), unicode.IsControl):
		return invalid("to_name must have 255 bytes at most, and no control characters: no client could name the session")
	case len(from) > len(clientUser) && strings.HasPrefix(from, clientUser):
		if err := identity.CheckUser(ask.GetToUser()); err != nil {
			return invalid("to_user: " + err.Error())
		}
	case len(from) > len(backendUser) && strings.HasPrefix(from, backendUser):
		if ask.GetToUser() != from || ask.GetToName() == ask.GetName() {
			return invalid("a backend's session gets another name: to_user must be user, and to_name another one than name")
		}
	default:
		return invalid("user must be client:ID or backend:ID: what belongs to a user stays the user's")
	}
	return nil
}
