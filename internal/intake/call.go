package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// What calls are charged for themselves: goroutines, gRPC's bookkeeping, and of streams a part of
// what lies in gRPC's buffers before it is asked for.
const (
	callBytes   = 16 << 10
	streamBytes = 32 << 10
)

// keptStep is by how much what a stream keeps has to change before the budget is told.
const keptStep = 16 << 10

// Call is a call or a stream under way. It belongs to the handler; its methods are safe for
// concurrent use.
type Call struct {
	budget *Budget
	caller *caller
	plan   *plan // of its requests
	base   int64

	mu      sync.Mutex
	request int64 // bytes of the one that was received last
	kept    int64 // bytes of unread answers
	over    bool
}

// Around registers services at r so that their calls and requests are charged to the budget.
func (b *Budget) Around(r grpcserve.Registrar) grpcserve.Registrar { return registrar{r, b, plans{}} }

type registrar struct {
	grpcserve.Registrar
	budget *Budget
	plans  plans
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	guarded := *d
	guarded.Methods, guarded.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i, m := range d.Methods {
		guarded.Methods[i].Handler = r.budget.method(r.plans.of(d.ServiceName, m.MethodName), m.Handler)
	}
	for i, s := range d.Streams {
		guarded.Streams[i].Handler = r.budget.stream(r.plans.of(d.ServiceName, s.StreamName), s)
	}
	r.Registrar.RegisterService(&guarded, impl)
}

// of says how to weigh requests of a method; nil: nobody knows.
func (all plans) of(service, method string) *plan {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil
	}
	m := s.Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return nil
	}
	return all.plan(m.Input())
}

func (b *Budget) method(p *plan, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c, err := b.begin(ctx, p, callBytes)
		if err != nil {
			b.punish(ctx, time.Now())
			return nil, err
		}
		defer c.end()
		return handle(srv, ctx, func(v any) error {
			err := c.only(ctx, v, dec)
			if code.Of(err) == wirev1.Code_CODE_OVERLOADED {
				c.put(0)
				b.punish(ctx, time.Now())
			}
			return err
		}, interceptor)
	}
}

func (b *Budget) stream(p *plan, d grpc.StreamDesc) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		base := int64(callBytes)
		if d.ClientStreams {
			base = streamBytes
		}
		c, err := b.begin(stream.Context(), p, base)
		if err != nil {
			b.punish(stream.Context(), time.Now())
			return err
		}
		defer c.end()
		return d.Handler(srv, &charged{
			ServerStream: stream, call: c, many: d.ClientStreams, ctx: context.WithValue(stream.Context(), key{}, c),
		})
	}
}

func (b *Budget) begin(ctx context.Context, p *plan, base int64) (*Call, error) {
	who, err := b.enter(ctx, base)
	if err != nil {
		return nil, err
	}
	return &Call{budget: b, caller: who, plan: p, base: base}, nil
}

// end gives back everything.
func (c *Call) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.budget.set(c.caller, c.request, 0)
	c.budget.leave(c.caller, c.base+c.kept)
	c.request, c.kept = 0, 0
}

// charged is a stream whose requests are charged.
type charged struct {
	grpc.ServerStream
	call *Call
	many bool // requests
	ctx  context.Context
}

type key struct{}

// Context implements grpc.ServerStream.
func (s *charged) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream. The request before is done with. One for which there is no
// room waits with its caller, who is not read meanwhile.
func (s *charged) RecvMsg(v any) error {
	if !s.many {
		return s.call.only(s.ctx, v, s.ServerStream.RecvMsg)
	}
	return s.call.next(s.ctx, v, s.ServerStream.RecvMsg)
}

// Of is the stream that a handler's context belongs to. It is nil, and its methods do nothing,
// where none is charged.
func Of(ctx context.Context) *Call {
	c, _ := ctx.Value(key{}).(*Call)
	return c
}

// Keep says how many bytes of answers are in memory that the caller has not read. They are charged
// to the caller's address: while it has more than its share, its streams are not read.
func (c *Call) Keep(n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := int64(n) / keptStep * keptStep
	if c.over || now == c.kept {
		return
	}
	c.budget.keep(c.caller, now-c.kept)
	c.kept = now
}

// resize charges the request for what it grows by, or refuses that.
func (c *Call) resize(to int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return context.Canceled
	}
	if err := c.budget.take(c.caller, c.request, to); err != nil {
		return err
	}
	c.request = to
	return nil
}

// put charges the request whatever there is.
func (c *Call) put(to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.budget.set(c.caller, c.request, to)
		c.request = to
	}
}

// await charges a request of n bytes as soon as there is room.
func (c *Call) await(ctx context.Context, n int64) error {
	if err := c.budget.wait(ctx, c.caller, n); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		c.budget.set(c.caller, n, 0)
		return context.Canceled
	}
	c.request = n
	return nil
}
