package router

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/intake"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/internal/turns"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/api"
	"github.com/pushmesh/pushmesh/services/router/internal/claims"
	"github.com/pushmesh/pushmesh/services/router/internal/gate"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
	"github.com/pushmesh/pushmesh/services/router/internal/subscribe"
)

const (
	// healthEvery is how stale grpc.health.v1 may be.
	healthEvery = 200 * time.Millisecond
	// healthDurable is the name in grpc.health.v1 of taking durable messages, for which the
	// namespaces and a store are needed.
	healthDurable = "durable"
)

// front is the gRPC server with its services. It is a lifecycle.Part that owns the listener and the
// server's goroutines.
type front struct {
	listen    string
	advertise string
	checks    *health.Checks
	// nil while durable messages are known as such, and there is a store that they can go to
	durable   func() error
	telemetry *telemetry.Telemetry
	publish   *publish.Service
	clients   *publish.Clients
	written   *publish.Outbox
	events    *publish.Events
	history   *api.History
	session   *api.Session
	access    *api.Access
	members   *api.Membership
	namespace *api.Namespace
	presence  *api.Presence
	rank      *api.Rank
	letters   *api.DeadLetter
	kept      *api.Kept
	mesh      *api.Mesh
	subscribe *subscribe.Service
	claims    *claims.Service
	calls     int // under way on one connection
	conns     *conns
	tls       *grpcserve.TLS // nil: none
	gate      *gate.Gate
	requests  *intake.Budget
	turns     *turns.Turns

	serving  atomic.Bool // calls are taken
	stopping stopping
	server   *grpcserve.Server
	group    *lifecycle.Group
}

func (f *front) check() error {
	if !f.serving.Load() {
		return errors.New("the router starts")
	}
	return f.stopping.err()
}

// Start listens and serves.
func (f *front) Start(ctx context.Context) error {
	var err error
	if f.server, err = grpcserve.Listen(ctx, f.listen); err != nil {
		return err
	}
	f.server.Wrap(f.conns.limit)
	f.server.Wrap(f.turns.Listen)
	f.server.SetServing("", false)
	f.server.SetServing(healthDurable, false)
	f.server.Serve(grpcserve.Config{
		MinPing: 5 * time.Second, TLS: f.tls,
		Options: append(intake.ServerOptions(),
			f.telemetry.ServerOption(),
			grpc.ForceServerCodecV2(codec.Codec{}),
			grpc.MaxConcurrentStreams(uint32(f.calls)),
		),
		// a call is counted first, then it is found out who calls, then its request is received
		Around:   func(r grpcserve.Registrar) grpcserve.Registrar { return f.gate.Around(f.requests.Around(r)) },
		Register: f.register,
	})
	f.serving.Store(true)
	f.group = lifecycle.NewGroup(context.Background())
	f.group.Go("grpc-health", f.watchHealth)
	f.telemetry.Log.Info("router is serving", "grpc", f.server.Addr(), "advertise", f.advertise, "tls", f.tls != nil, "plain", f.tls == nil || !f.tls.Required, "open", f.gate.Open())
	return nil
}

func (f *front) register(r grpc.ServiceRegistrar) {
	pushmeshv1.RegisterPublishServiceServer(r, f.publish)
	pushmeshv1.RegisterHistoryServiceServer(r, f.history)
	pushmeshv1.RegisterSessionServiceServer(r, f.session)
	pushmeshv1.RegisterAccessServiceServer(r, f.access)
	pushmeshv1.RegisterMembershipServiceServer(r, f.members)
	pushmeshv1.RegisterNamespaceServiceServer(r, f.namespace)
	pushmeshv1.RegisterPresenceServiceServer(r, f.presence)
	pushmeshv1.RegisterRankServiceServer(r, f.rank)
	pushmeshv1.RegisterDeadLetterServiceServer(r, f.letters)
	pushmeshv1.RegisterKeptServiceServer(r, f.kept)
	pushmeshv1.RegisterMeshServiceServer(r, f.mesh)
	pushmeshv1.RegisterSubscribeServiceServer(r, f.subscribe)
	pushmeshv1.RegisterClaimServiceServer(r, f.claims)
}

func (f *front) watchHealth(ctx context.Context) {
	tell := func(time.Time) {
		ready, _ := f.checks.Status()
		f.server.SetServing("", ready)
		f.server.SetServing(healthDurable, f.check() == nil && f.durable() == nil)
	}
	tell(time.Now())
	lifecycle.Every(ctx, healthEvery, tell)
}

// Stop is a planned one: not ready, GOAWAY, DRAINING for what is new, answers for what is under
// way. Calls that have not ended when two thirds of the time are over are cut off; the rest is for
// what comes after the front.
func (f *front) Stop(ctx context.Context) error {
	f.stopping.Store(true)
	f.server.Leave()
	f.publish.Drain()
	f.clients.Drain()
	f.written.Drain()
	f.subscribe.Drain()
	f.events.Drain()
	f.presence.Drain()
	f.claims.Drain()
	patience, cancel := grpcserve.Patience(ctx)
	defer cancel()
	return errors.Join(f.server.Stop(patience), f.group.Stop(ctx))
}
