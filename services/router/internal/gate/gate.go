// Package gate stands before the services of a router: it finds out who calls, and refuses what the
// caller's roles don't allow.
package gate

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/audit"
)

// Verifier checks tokens (token.Verifier).
type Verifier interface {
	Verify(ctx context.Context, text string) (*identity.Principal, error)
}

// Config of a Gate.
type Config struct {
	// Backends are those who may call; nil: everybody may do everything.
	Backends *backends.Keeper
	// Tokens checks those that issuers sign; nil: none are taken.
	Tokens Verifier
	// Caller names who calls where nobody has to prove a name, for the audit.
	Caller func(context.Context) string
	// Audit is told of each change; nil: the log alone is.
	Audit *audit.Trail
	// Decisions logs some of what is decided; nil: none.
	Decisions *decisions.Log
	Log       *slog.Logger
	Registry  prometheus.Registerer
}

// Gate is safe for concurrent use.
type Gate struct {
	cfg     Config
	refused *prometheus.CounterVec
}

// New makes a gate.
func New(cfg Config) *Gate {
	if cfg.Audit == nil {
		cfg.Audit = audit.New(audit.Config{Log: cfg.Log})
	}
	g := &Gate{cfg: cfg}
	g.register()
	return g
}

// Open reports whether everybody may do everything.
func (g *Gate) Open() bool { return g.cfg.Backends == nil }

// Around puts the gate before the services that are registered at r: who calls is known before its
// request is received. Services of gRPC itself, health and reflection, are open to everybody.
func (g *Gate) Around(r grpcserve.Registrar) grpcserve.Registrar { return &registrar{r, g} }

type registrar struct {
	grpcserve.Registrar
	gate *Gate
}

// RegisterService implements grpc.ServiceRegistrar.
func (r *registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	if strings.HasPrefix(d.ServiceName, "grpc.") {
		r.Registrar.RegisterService(d, impl)
		return
	}
	guarded := *d
	guarded.Methods = append([]grpc.MethodDesc(nil), d.Methods...)
	for i := range guarded.Methods {
		m := &guarded.Methods[i]
		m.Handler = r.gate.method(d.ServiceName+"/"+m.MethodName, m.Handler)
	}
	guarded.Streams = append([]grpc.StreamDesc(nil), d.Streams...)
	for i := range guarded.Streams {
		s := &guarded.Streams[i]
		s.Handler = r.gate.stream(d.ServiceName+"/"+s.StreamName, s.Handler)
	}
	r.Registrar.RegisterService(&guarded, impl)
}

// method is a handler that refuses.
func (g *Gate) method(name string, handle grpc.MethodHandler) grpc.MethodHandler {
	need, known := needs[name]
	if g.cfg.Backends == nil && need.about == nil {
		return handle
	}
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := &call{gate: g, name: name, need: &need}
		var end context.CancelCauseFunc
		if need.waits {
			ctx, end = context.WithCancelCause(ctx)
			defer end(nil)
		}
		if err := c.enter(ctx, known, need.waits, end); err != nil {
			return nil, c.refuse(ctx, err)
		}
		defer c.release()
		if c.caller != nil {
			ctx = backends.With(ctx, c.caller)
		}
		var res any
		ctx, err := c.audited(ctx, func(ctx context.Context) (err error) {
			res, err = handle(srv, ctx, func(v any) error {
				if err := dec(v); err != nil {
					return err
				}
				return c.begin(ctx, v)
			}, interceptor)
			return err
		})
		if err != nil && c.ended.Load() != nil {
			return nil, c.refuse(ctx, context.Cause(ctx))
		}
		return res, err
	}
}

// stream is a handler that refuses, and ends when its caller is not to go on.
func (g *Gate) stream(name string, handle grpc.StreamHandler) grpc.StreamHandler {
	need, known := needs[name]
	if g.cfg.Backends == nil && need.about == nil {
		return handle
	}
	return func(srv any, s grpc.ServerStream) error {
		c := &call{gate: g, name: name, need: &need}
		over := make(chan error, 1)
		if err := c.enter(s.Context(), known, true, func(err error) { over <- err }); err != nil {
			return c.refuse(s.Context(), err)
		}
		defer c.release()
		served := func(ctx context.Context) error {
			_, err := c.audited(ctx, func(ctx context.Context) error {
				return handle(srv, &stream{ServerStream: s, ctx: ctx, call: c})
			})
			return err
		}
		if c.caller == nil {
			return served(s.Context())
		}
		ctx, cancel := context.WithCancel(backends.With(s.Context(), c.caller))
		defer cancel()
		done := make(chan error, 1)
		// where the call is ended from here, what the handler waits for in gRPC fails then
		go func() { done <- served(ctx) }()
		select {
		case err := <-done:
			return err
		case err := <-over:
			return c.refuse(ctx, err)
		}
	}
}

// stream is one whose first message is checked.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	call  *call
	begun bool // the receiver's
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(v any) error {
	if err := s.ServerStream.RecvMsg(v); err != nil || s.begun {
		return err
	}
	s.begun = true
	return s.call.begin(s.ctx, v)
}

// call is one call.
type call struct {
	gate   *Gate
	name   string
	need   *need
	caller *backends.Caller // nil: everybody may do everything
	free   func()           // nil: nothing is held
	// ended is why the caller may not go on; nil: it may.
	ended  atomic.Pointer[error]
	proof  string        // what the caller has shown, for the audit
	record *audit.Record // of a change that has begun; nil: none has. The handler's
}

// enter finds out who calls, and whether it may at all.
func (c *call) enter(ctx context.Context, known, lasts bool, end func(error)) error {
	if c.gate.cfg.Backends == nil {
		return nil
	}
	if !known {
		return code.New(wirev1.Code_CODE_FORBIDDEN, c.name+": no role is known for this call")
	}
	proof, err := c.gate.proof(ctx)
	if err != nil {
		return err
	}
	c.proof = shown(&proof)
	if lasts {
		c.caller, c.free, err = c.gate.cfg.Backends.Hold(&proof, func(err error) {
			c.ended.Store(&err)
			end(err)
		})
	} else {
		var who *backends.Identity
		if who, err = c.gate.cfg.Backends.Find(&proof); err == nil {
			c.caller = backends.NewCaller(who)
		}
	}
	if err != nil {
		return err
	}
	if who := c.caller.Who(); !who.Has(c.need.any | c.need.part) {
		c.release()
		return who.Lacks(c.need.any|c.need.part, c.name)
	}
	return nil
}

func (c *call) release() {
	if c.free != nil {
		c.free()
	}
}

// bearer is what the value of authorization begins with.
const bearer = "Bearer "

// howTo is said to who has shown nothing.
const howTo = "this router asks who calls: send an API key or a token in the metadata (authorization: Bearer ...; pushmesh --router-token-file FILE), or connect with a client certificate that the backends file names"

// proof is what a call proves. A token that is shown counts alone, and whatever it is worth the
// certificate does not stand in for it.
func (g *Gate) proof(ctx context.Context) (backends.Proof, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		if names := certificate(ctx); len(names) > 0 {
			return backends.Proof{Certificate: names}, nil
		}
		return backends.Proof{}, unauthenticated(howTo)
	}
	if len(values) > 1 || len(values[0]) <= len(bearer) || !strings.EqualFold(values[0][:len(bearer)], bearer) {
		return backends.Proof{}, unauthenticated("the metadata authorization must be there once, and be \"Bearer \" and an API key or a token")
	}
	text := strings.TrimSpace(values[0][len(bearer):])
	if strings.HasPrefix(text, backends.KeyPrefix) {
		p, err := backends.ReadKey(text)
		if err != nil {
			return p, unauthenticated(err.Error())
		}
		return p, nil
	}
	if g.cfg.Tokens == nil {
		return backends.Proof{}, unauthenticated("what was sent is no API key, and this router has no issuers of tokens (--issuers)")
	}
	who, err := g.cfg.Tokens.Verify(ctx, text)
	if err != nil {
		return backends.Proof{}, err
	}
	return backends.Proof{Token: backends.Subject{Issuer: who.Proof.Issuer, Sub: who.User}, Expires: who.Expires}, nil
}

var _ Verifier = (*token.Verifier)(nil)

func unauthenticated(text string) error { return code.New(wirev1.Code_CODE_UNAUTHENTICATED, text) }

// certificate has the names in the caller's certificate that was verified: URIs, DNS names, and the
// common name.
func certificate(ctx context.Context) (names []string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	c := info.State.PeerCertificates[0]
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	names = append(names, c.DNSNames...)
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// refuse counts a refusal.
func (c *call) refuse(ctx context.Context, err error) error {
	c.gate.refused.WithLabelValues(code.Name(code.Of(err))).Inc()
	c.gate.cfg.Log.Debug("a call was refused", "call", c.name, "from", from(ctx), "error", err)
	c.decide(ctx, nil, err)
	return err
}
