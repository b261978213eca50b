// Package grpcserve serves gRPC, with TLS and without: it listens, keeps connections alive, answers
// grpc.health.v1 and reflection, and stops gracefully.
package grpcserve

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// begin is Config.Begin where it is not said.
const begin = 5 * time.Second

// Config of a Server.
type Config struct {
	// MinPing is the shortest time between a client's keepalive pings; one that pings more often is
	// disconnected.
	MinPing time.Duration
	// Begin is how long a client has for its TLS handshake and the beginning of HTTP/2 together; 0:
	// 5 s. A stop may wait as long for one that says nothing.
	Begin time.Duration
	// TLS, if any, is taken beside connections without it, or alone.
	TLS     *TLS
	Options []grpc.ServerOption
	// Around, if any, is put around the server for all services, those of this package included.
	Around func(Registrar) Registrar
	// Register adds the services.
	Register func(grpc.ServiceRegistrar)
}

// Registrar is what services are registered at.
type Registrar interface {
	grpc.ServiceRegistrar
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// Server owns a listener, the gRPC server on it and the goroutine that serves. Its methods are safe
// for concurrent use once Serve has returned.
type Server struct {
	listener net.Listener
	server   *grpc.Server
	health   *grpchealth.Server
	served   chan error
}

// Listen takes the address. Connections wait in the backlog until Serve.
func Listen(ctx context.Context, addr string) (*Server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Server{listener: l, health: grpchealth.NewServer(), served: make(chan error, 1)}, nil
}

// Addr is where the server listens; that of a nil Server is empty.
func (s *Server) Addr() string {
	if s == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Wrap puts a listener around the one that Serve will accept from. It must be called before Serve.
func (s *Server) Wrap(f func(net.Listener) net.Listener) { s.listener = f(s.listener) }

// Close gives the address back without having served.
func (s *Server) Close() error { return s.listener.Close() }

// Serve begins to take calls, until Stop.
func (s *Server) Serve(cfg Config) {
	options := []grpc.ServerOption{
		grpc.ConnectionTimeout(cmp.Or(cfg.Begin, begin)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cfg.MinPing, PermitWithoutStream: true}),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(newDoor(cfg.TLS)))
	}
	s.server = grpc.NewServer(append(options, cfg.Options...)...)
	var at Registrar = s.server
	if cfg.Around != nil {
		at = cfg.Around(at)
	}
	cfg.Register(at)
	grpc_health_v1.RegisterHealthServer(at, s.health)
	reflection.Register(at)
	go func() { s.served <- s.server.Serve(s.listener) }() // ends with Stop
}

// SetServing sets what grpc.health.v1 answers for a name; "", the whole server, serves from the
// beginning.
func (s *Server) SetServing(name string, ok bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ok {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, status)
}

// Leave has grpc.health.v1 answer NOT_SERVING for every name, for good.
func (s *Server) Leave() { s.health.Shutdown() }

// Stop refuses new calls and waits for those under way. Those that have not ended with ctx are cut
// off, which is an error.
func (s *Server) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return <-s.served
	case <-ctx.Done():
		s.server.Stop()
		<-done
		return errors.Join(errors.New("some calls had to be cut off"), <-s.served)
	}
}

// Patience ends after two thirds of the time until ctx's deadline: the rest is for what a process
// does once its calls have ended.
func Patience(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*2/3)
}
