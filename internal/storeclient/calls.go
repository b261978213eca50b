package storeclient

import (
	"context"
	"errors"
	"io"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// errStopped keeps an error of the caller's own function apart from the store's. It does not
// unwrap: nothing may be tried again because of it.
type errStopped struct{ error }

// onShard calls the owner of a shard, and once more after a refresh where it turns out not to be
// the owner.
func onShard[R any](ctx context.Context, c *Client, shard int, call func(meshv1.StoreServiceClient) (R, error)) (R, error) {
	resp, err := once(c, shard, call)
	if code.Of(err) != wirev1.Code_CODE_CONFLICT {
		return resp, err
	}
	if err := c.Refreshed(ctx); err != nil {
		var none R
		return none, err
	}
	return once(c, shard, call)
}

func once[R any](c *Client, shard int, call func(meshv1.StoreServiceClient) (R, error)) (R, error) {
	_, stub, err := c.Owner(shard)
	if err != nil {
		var none R
		return none, err
	}
	resp, err := call(stub)
	c.noticed(err)
	return resp, err
}

// noticed has the map refreshed where an error says that it may be wrong.
func (c *Client) noticed(err error) {
	if k := code.Of(err); k == wirev1.Code_CODE_CONFLICT || k == wirev1.Code_CODE_UNAVAILABLE {
		c.Refresh()
	}
}

// ReadLog reads a range from the topic's owner and hands on each response. An error of take ends
// the read and is returned as it is. It is tried again only while take has not been called.
func (c *Client) ReadLog(ctx context.Context, req *meshv1.ReadLogRequest, take func(*meshv1.ReadLogResponse) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream where take gives up
	defer cancel()
	begun := false
	_, err := onShard(ctx, c, topic.Shard(req.GetTopic()), func(stub meshv1.StoreServiceClient) (struct{}, error) {
		stream, err := stub.ReadLog(ctx, req)
		for err == nil {
			var resp *meshv1.ReadLogResponse
			if resp, err = stream.Recv(); err == nil {
				begun = true
				if failed := take(resp); failed != nil {
					return struct{}{}, errStopped{failed}
				}
			}
		}
		switch err = away(ctx, err); {
		case errors.Is(err, io.EOF):
			return struct{}{}, nil
		case begun && code.Of(err) == wirev1.Code_CODE_CONFLICT:
			return struct{}{}, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the topic's owner changed during the read")
		}
		return struct{}{}, err
	})
	var stopped errStopped
	if errors.As(err, &stopped) {
		return stopped.error
	}
	return err
}

// AttachSession asks the session's owner.
func (c *Client) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	return onShard(ctx, c, topic.SessionShard(req.GetUser(), req.GetName()), func(stub meshv1.StoreServiceClient) (*meshv1.AttachSessionResponse, error) {
		return stub.AttachSession(ctx, req)
	})
}

// GetSession asks the session's owner.
func (c *Client) GetSession(ctx context.Context, req *meshv1.GetSessionRequest) (*meshv1.GetSessionResponse, error) {
	return onShard(ctx, c, topic.SessionShard(req.GetUser(), req.GetName()), func(stub meshv1.StoreServiceClient) (*meshv1.GetSessionResponse, error) {
		return stub.GetSession(ctx, req)
	})
}

// DeleteSession asks the session's owner.
func (c *Client) DeleteSession(ctx context.Context, req *meshv1.DeleteSessionRequest) (*meshv1.DeleteSessionResponse, error) {
	return onShard(ctx, c, topic.SessionShard(req.GetUser(), req.GetName()), func(stub meshv1.StoreServiceClient) (*meshv1.DeleteSessionResponse, error) {
		return stub.DeleteSession(ctx, req)
	})
}

// AdoptSession asks the owner of the session as it is now.
func (c *Client) AdoptSession(ctx context.Context, req *meshv1.AdoptSessionRequest) (*meshv1.AdoptSessionResponse, error) {
	return onShard(ctx, c, topic.SessionShard(req.GetUser(), req.GetName()), func(stub meshv1.StoreServiceClient) (*meshv1.AdoptSessionResponse, error) {
		return stub.AdoptSession(ctx, req)
	})
}

// PutNamespace asks any store.
func (c *Client) PutNamespace(ctx context.Context, req *meshv1.PutNamespaceRequest) (*meshv1.PutNamespaceResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.PutNamespaceResponse, error) {
		return stub.PutNamespace(ctx, req)
	})
}

// ListNamespaces asks any store.
func (c *Client) ListNamespaces(ctx context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.ListNamespacesResponse, error) {
		return stub.ListNamespaces(ctx, req)
	})
}

// DeleteNamespace asks any store.
func (c *Client) DeleteNamespace(ctx context.Context, req *meshv1.DeleteNamespaceRequest) (*meshv1.DeleteNamespaceResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.DeleteNamespaceResponse, error) {
		return stub.DeleteNamespace(ctx, req)
	})
}

// Revoke asks any store.
func (c *Client) Revoke(ctx context.Context, req *meshv1.StoreServiceRevokeRequest) (*meshv1.StoreServiceRevokeResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceRevokeResponse, error) {
		return stub.Revoke(ctx, req)
	})
}

// ListRevocations asks any store.
func (c *Client) ListRevocations(ctx context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceListRevocationsResponse, error) {
		return stub.ListRevocations(ctx, req)
	})
}

// Restore asks any store.
func (c *Client) Restore(ctx context.Context, req *meshv1.StoreServiceRestoreRequest) (*meshv1.StoreServiceRestoreResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceRestoreResponse, error) {
		return stub.Restore(ctx, req)
	})
}

// PutTeam asks any store.
func (c *Client) PutTeam(ctx context.Context, req *meshv1.StoreServicePutTeamRequest) (*meshv1.StoreServicePutTeamResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServicePutTeamResponse, error) {
		return stub.PutTeam(ctx, req)
	})
}

// DeleteTeam asks any store.
func (c *Client) DeleteTeam(ctx context.Context, req *meshv1.StoreServiceDeleteTeamRequest) (*meshv1.StoreServiceDeleteTeamResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceDeleteTeamResponse, error) {
		return stub.DeleteTeam(ctx, req)
	})
}

// ChangeMembers asks any store.
func (c *Client) ChangeMembers(ctx context.Context, req *meshv1.StoreServiceChangeMembersRequest) (*meshv1.StoreServiceChangeMembersResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceChangeMembersResponse, error) {
		return stub.ChangeMembers(ctx, req)
	})
}

// FindTeams asks any store.
func (c *Client) FindTeams(ctx context.Context, req *meshv1.StoreServiceFindTeamsRequest) (*meshv1.StoreServiceFindTeamsResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceFindTeamsResponse, error) {
		return stub.FindTeams(ctx, req)
	})
}

// FollowTeams asks any store.
func (c *Client) FollowTeams(ctx context.Context, req *meshv1.StoreServiceFollowTeamsRequest) (*meshv1.StoreServiceFollowTeamsResponse, error) {
	return onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceFollowTeamsResponse, error) {
		return stub.FollowTeams(ctx, req)
	})
}

// AcceptServer asks any store.
func (c *Client) AcceptServer(ctx context.Context, req *pushmeshv1.AcceptServerRequest) (*pushmeshv1.AcceptServerResponse, error) {
	resp, err := onAny(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceAcceptServerResponse, error) {
		return stub.AcceptServer(ctx, &meshv1.StoreServiceAcceptServerRequest{Request: req})
	})
	return resp.GetResponse(), err
}

// onAny calls the store that answered last: what every store can answer needs no owner.
func onAny[R any](c *Client, call func(meshv1.StoreServiceClient) (R, error)) (R, error) {
	var none R
	addr := c.latest()
	if addr == "" {
		c.Refresh()
		return none, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "no store is reachable")
	}
	stub, err := c.dials.to(addr)
	if err != nil {
		return none, err
	}
	resp, err := call(stub)
	c.noticed(err)
	return resp, err
}

// latest is the first owner that has answered lately, else the store that answered last; "" where
// none ever did.
func (c *Client) latest() string {
	owners, _ := c.distinct()
	c.mu.RLock()
	defer c.mu.RUnlock()
	best := ""
	for addr, at := range c.lastAnswer {
		if best == "" || at.After(c.lastAnswer[best]) {
			best = addr
		}
	}
	for _, addr := range owners {
		if at, ok := c.lastAnswer[addr]; ok && c.lastAnswer[best].Sub(at) < c.waits.silent {
			return addr
		}
	}
	return best
}
