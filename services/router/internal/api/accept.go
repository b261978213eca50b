package api

import (
	"context"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// Accepter is what AcceptServer needs of the store (storeclient.Client).
type Accepter interface {
	AcceptServer(ctx context.Context, req *pushmeshv1.AcceptServerRequest) (*pushmeshv1.AcceptServerResponse, error)
}

// AcceptServer implements MeshService. The store judges what it is asked for.
func (m *Mesh) AcceptServer(ctx context.Context, req *pushmeshv1.AcceptServerRequest) (*pushmeshv1.AcceptServerResponse, error) {
	if e := req.GetEpoch(); e != pushmeshv1.AcceptServerRequest_EPOCH_SAME && e != pushmeshv1.AcceptServerRequest_EPOCH_NEW {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "epoch must be EPOCH_SAME, where nothing that was acknowledged is missing, or EPOCH_NEW")
	}
	done, err := m.stores.AcceptServer(ctx, req)
	if err != nil {
		return nil, err
	}
	audit.Before(ctx, done.GetBefore())
	audit.After(ctx, done)
	return done, nil
}
