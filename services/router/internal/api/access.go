package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// AccessStore is what Access needs of the store (storeclient.Client).
type AccessStore interface {
	Revoke(ctx context.Context, req *meshv1.StoreServiceRevokeRequest) (*meshv1.StoreServiceRevokeResponse, error)
	ListRevocations(ctx context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error)
	Restore(ctx context.Context, req *meshv1.StoreServiceRestoreRequest) (*meshv1.StoreServiceRestoreResponse, error)
}

const (
	defaultRevocations = 100
	maxRevocations     = 1000
)

// Access is pushmesh.v1.AccessService.
type Access struct {
	pushmeshv1.UnimplementedAccessServiceServer
	store AccessStore
}

// NewAccess makes the service.
func NewAccess(store AccessStore) *Access { return &Access{store: store} }

// Revoke implements AccessService.
func (a *Access) Revoke(ctx context.Context, req *pushmeshv1.AccessServiceRevokeRequest) (*pushmeshv1.AccessServiceRevokeResponse, error) {
	r := &pushmeshv1.Revocation{User: req.GetUser(), Issuer: req.GetIssuer(), TokenId: req.GetTokenId(), Reason: req.GetReason(), Until: req.GetUntil()}
	resp, err := a.store.Revoke(ctx, &meshv1.StoreServiceRevokeRequest{Revocation: r})
	if err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, resp.GetRevocation())
	return &pushmeshv1.AccessServiceRevokeResponse{Revocation: resp.GetRevocation()}, nil
}

// Restore implements AccessService.
func (a *Access) Restore(ctx context.Context, req *pushmeshv1.AccessServiceRestoreRequest) (*pushmeshv1.AccessServiceRestoreResponse, error) {
	r := &pushmeshv1.Revocation{User: req.GetUser(), Issuer: req.GetIssuer(), TokenId: req.GetTokenId()}
	if _, err := a.store.Restore(ctx, &meshv1.StoreServiceRestoreRequest{Revocation: r}); err != nil {
		return nil, code.From(err)
	}
	audit.After(ctx, nil)
	return &pushmeshv1.AccessServiceRestoreResponse{}, nil
}

// List implements AccessService.
func (a *Access) List(ctx context.Context, req *pushmeshv1.AccessServiceListRequest) (*pushmeshv1.AccessServiceListResponse, error) {
	limit := req.GetLimit()
	switch {
	case limit == 0:
		limit = defaultRevocations
	case limit > maxRevocations:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, fmt.Sprintf("limit is %d, at most 1,000", req.GetLimit()))
	}
	var have uint64
	if req.GetPageToken() != "" {
		var err error
		if have, err = strconv.ParseUint(req.GetPageToken(), 10, 64); err != nil {
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "page_token is none that an answer had")
		}
	}
	resp := &pushmeshv1.AccessServiceListResponse{}
	for more := true; more; {
		// whole pages, since those that were restored are left out
		page, err := a.store.ListRevocations(ctx, &meshv1.StoreServiceListRevocationsRequest{HaveVersion: have, Limit: maxRevocations})
		if err != nil {
			return nil, code.From(err)
		}
		for i, r := range page.GetRevocations() {
			switch {
			case slices.Contains(page.GetRestored(), uint32(i)):
			case len(resp.GetRevocations()) == int(limit):
				resp.NextPageToken = strconv.FormatUint(have, 10)
				return resp, nil
			default:
				resp.Revocations = append(resp.Revocations, r)
			}
			have = r.GetVersion()
		}
		more, have = page.GetMore(), page.GetVersion()
	}
	return resp, nil
}
