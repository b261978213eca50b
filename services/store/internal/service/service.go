// Package service answers meshv1.StoreService from a backend and the log above it.
package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/lease"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// Owners says who owns which shards.
type Owners interface {
	Owners() []*meshv1.OwnersResponse_Range
}

// Claims serves claims (claims.Lane).
type Claims interface {
	Serve(grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error
	List(context.Context, *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error)
}

// Database is what the service asks of a backend itself; all else is the log's and the claims'.
type Database interface {
	backend.Records
	// Keys is that of a backend.Finder.
	Keys(ctx context.Context, hashes []backend.KeyHash, now uint64) ([]backend.Key, error)
}

// Config of a Service.
type Config struct {
	Backend Database
	Log     *shardlog.Log
	Owners  Owners
	Claims  Claims
	// StoreID of this store.
	StoreID string
	// Mesh that the database belongs to.
	Mesh meshid.Mesh
	// Letters is called when there are new dead letters; it must not block.
	Letters func()
	// Changed is called after a change of namespaces; it must not block.
	Changed func()
	// Revoked is called with the version after a change of revocations; it must not block.
	Revoked func(version uint64)
	// Teamed is called with the version after a change of teams, with 0 where there may have been
	// one; it must not block.
	Teamed func(version uint64)
	// Quotas of sessions.
	Quotas Quotas
	Now    func() time.Time
	Logger *slog.Logger
	// Registry may be nil.
	Registry prometheus.Registerer
}

// Service answers every call of meshv1.StoreService.
type Service struct {
	meshv1.UnimplementedStoreServiceServer
	cfg Config
	// ending is closed when streams should end.
	ending chan struct{}
	leases *lease.Table
	quotas *quotas
	// putting has an element for each model that is being put.
	putting chan struct{}
}

// New makes a service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, ending: make(chan struct{}), leases: lease.New(), quotas: newQuotas(cfg.Quotas, cfg.Registry), putting: make(chan struct{}, modelsAtOnce)}
}

// Register adds it to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { meshv1.RegisterStoreServiceServer(r, s) }

// End ends the append streams once what they have unanswered is answered. It is called once.
func (s *Service) End() { close(s.ending) }

func (s *Service) now() uint64 { return uint64(s.cfg.Now().UnixMicro()) }

// Owners answers as far as this store knows.
func (s *Service) Owners(context.Context, *meshv1.OwnersRequest) (*meshv1.OwnersResponse, error) {
	return &meshv1.OwnersResponse{Ranges: s.cfg.Owners.Owners(), MeshId: s.cfg.Mesh.ID, MeshName: s.cfg.Mesh.Name}, nil
}

// refused gives every error of the backend its code: callers learn whether trying again helps.
func (s *Service) refused(ctx context.Context, doing string, err error) error {
	var known *code.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, backend.ErrNotFound):
		return code.New(wirev1.Code_CODE_NOT_FOUND, err.Error())
	case errors.Is(err, backend.ErrExists):
		return code.New(wirev1.Code_CODE_ALREADY_EXISTS, err.Error())
	case errors.Is(err, backend.ErrConflict):
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, err.Error())
	case ctx.Err() != nil:
		return code.From(ctx.Err())
	}
	s.cfg.Logger.Warn("a call to the database failed", "doing", doing, "error", err)
	return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, doing+": "+err.Error())
}

// retryAfter is when to come back after the database failed.
const retryAfter = 250 * time.Millisecond
