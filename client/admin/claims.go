package admin

import (
	"context"
	"iter"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Place is an owner's at a resource.
type Place struct {
	Resource, Owner string
	// Token of the hold; 0: the owner waits.
	Token uint64
	// Position in the line, 1 is next; 0: the owner holds the resource.
	Position uint32
	// Priority, 0 to 9; 10: the owner was named as a successor.
	Priority uint32
	// JoinedAt, GrantedAt (zero: it was not) and ExpiresAt (zero: it does not by itself), by the
	// database's clock.
	JoinedAt, GrantedAt, ExpiresAt time.Time
	// Offered: granted, and not taken up yet.
	Offered bool
	// Node that tells the owner; empty: the owner polls, or its connection is gone.
	Node string
}

// Places yields who holds a resource, and then the line.
func (c *Client) Places(ctx context.Context, resource string) iter.Seq2[Place, error] {
	return c.listPlaces(ctx, &pushmeshv1.ClaimServiceListRequest{Resource: resource})
}

// PlacesUnder is Places of every resource whose name begins with prefix, in no particular order of
// the resources.
func (c *Client) PlacesUnder(ctx context.Context, prefix string) iter.Seq2[Place, error] {
	return c.listPlaces(ctx, &pushmeshv1.ClaimServiceListRequest{Prefix: prefix})
}

func (c *Client) listPlaces(ctx context.Context, req *pushmeshv1.ClaimServiceListRequest) iter.Seq2[Place, error] {
	return pages(func(token string) ([]Place, string, error) {
		r, err := ask(ctx, c.claims.List, &pushmeshv1.ClaimServiceListRequest{Resource: req.GetResource(), Prefix: req.GetPrefix(), Limit: pageSize, PageToken: token})
		return mapped(r.GetPlaces(), placeOf), r.GetNextPageToken(), err
	})
}

// EndHold ends an owner's hold, whose Token and Owner Places tells; the next in line gets the
// resource. NOT_HELD: it has ended already.
func (c *Client) EndHold(ctx context.Context, resource, owner string, token uint64) error {
	r, err := change(ctx, c.claims.Release, &pushmeshv1.ReleaseRequest{Resource: resource, Owner: owner, Token: token})
	if err == nil && r.GetState().GetState() != wirev1.ClaimState_STATE_RELEASED {
		return &pushmesh.Error{Code: pushmesh.CodeNotHeld, Message: "the hold of this token has ended"}
	}
	return err
}

// EndWait takes an owner out of a line.
func (c *Client) EndWait(ctx context.Context, resource, owner string) error {
	_, err := change(ctx, c.claims.Leave, &pushmeshv1.LeaveRequest{Resource: resource, Owner: owner})
	return err
}

func placeOf(m *pushmeshv1.ClaimPlace) Place {
	return Place{
		Resource: m.GetResource(), Owner: m.GetOwner(), Token: m.GetToken(), Position: m.GetPosition(), Priority: m.GetPriority(),
		JoinedAt: timeOf(m.GetJoinedAt()), GrantedAt: timeOf(m.GetGrantedAt()), ExpiresAt: timeOf(m.GetExpiresAt()), Offered: m.GetOffered(), Node: m.GetNode(),
	}
}
