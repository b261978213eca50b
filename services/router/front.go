package router

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/pushmesh/pushmesh/internal/health"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/telemetry"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/api"
	"github.com/pushmesh/pushmesh/services/router/internal/claims"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
	"github.com/pushmesh/pushmesh/services/router/internal/subscribe"
)

const (
	// maxReceive lets a batch of PublishStream and a ranking of 100,000 candidates in.
	maxReceive = 64 << 20
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
	namespace *api.Namespace
	presence  *api.Presence
	rank      *api.Rank
	letters   *api.DeadLetter
	mesh      *api.Mesh
	subscribe *subscribe.Service
	claims    *claims.Service
	calls     int // under way on one connection
	conns     *conns

	serving  atomic.Bool // calls are taken
	stopping stopping
	listener net.Listener
	server   *grpc.Server
	health   *grpchealth.Server
	group    *lifecycle.Group
	served   chan error
}

func (f *front) check() error {
	if !f.serving.Load() {
		return errors.New("the router starts")
	}
	return f.stopping.err()
}

func (f *front) addr() string {
	if f.listener == nil {
		return ""
	}
	return f.listener.Addr().String()
}

// Start listens and serves.
func (f *front) Start(ctx context.Context) error {
	var err error
	if f.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen); err != nil {
		return err
	}
	f.listener = f.conns.limit(f.listener)
	f.server = grpc.NewServer(
		f.telemetry.ServerOption(),
		grpc.ForceServerCodecV2(codec.Codec{}),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxConcurrentStreams(uint32(f.calls)),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	pushmeshv1.RegisterPublishServiceServer(f.server, f.publish)
	pushmeshv1.RegisterHistoryServiceServer(f.server, f.history)
	pushmeshv1.RegisterSessionServiceServer(f.server, f.session)
	pushmeshv1.RegisterNamespaceServiceServer(f.server, f.namespace)
	pushmeshv1.RegisterPresenceServiceServer(f.server, f.presence)
	pushmeshv1.RegisterRankServiceServer(f.server, f.rank)
	pushmeshv1.RegisterDeadLetterServiceServer(f.server, f.letters)
	pushmeshv1.RegisterMeshServiceServer(f.server, f.mesh)
	pushmeshv1.RegisterSubscribeServiceServer(f.server, f.subscribe)
	pushmeshv1.RegisterClaimServiceServer(f.server, f.claims)
	f.health = grpchealth.NewServer()
	f.health.SetServingStatus("", servingStatus(false))
	f.health.SetServingStatus(healthDurable, servingStatus(false))
	grpc_health_v1.RegisterHealthServer(f.server, f.health)
	reflection.Register(f.server)

	f.served = make(chan error, 1)
	f.group = lifecycle.NewGroup(context.Background())
	f.group.Go("grpc-serve", func(context.Context) { f.served <- f.server.Serve(f.listener) })
	f.serving.Store(true)
	f.group.Go("grpc-health", f.watchHealth)
	f.telemetry.Log.Info("router is serving", "grpc", f.addr(), "advertise", f.advertise)
	return nil
}

func (f *front) watchHealth(ctx context.Context) {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		ready, _ := f.checks.Status()
		f.health.SetServingStatus("", servingStatus(ready))
		f.health.SetServingStatus(healthDurable, servingStatus(f.check() == nil && f.durable() == nil))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func servingStatus(ok bool) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if ok {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}

// Stop is a planned one: not ready, GOAWAY, DRAINING for what is new, answers for what is under
// way. Calls that have not ended when two thirds of the time are over are cut off; the rest is for
// what comes after the front.
func (f *front) Stop(ctx context.Context) error {
	f.stopping.Store(true)
	f.health.Shutdown()
	f.publish.Drain()
	f.clients.Drain()
	f.written.Drain()
	f.subscribe.Drain()
	f.events.Drain()
	f.presence.Drain()
	f.claims.Drain()
	patience := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, time.Until(deadline)*2/3)
		defer cancel()
	}
	done := make(chan struct{})
	go func() {
		f.server.GracefulStop()
		close(done)
	}()
	var late error
	select {
	case <-done:
	case <-patience.Done():
		late = errors.New("some calls had to be cut off")
		f.server.Stop()
		<-done
	}
	return errors.Join(late, <-f.served, f.group.Stop(ctx))
}
