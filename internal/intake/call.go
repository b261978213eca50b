package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
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

const (
	// AnswerBytes is about what the answer to an item of a stream's request takes while it waits.
	// It is charged with the request.
	AnswerBytes = 256
	// healthBytes is the budget of health checks, which have one of their own: who uses up its
	// share of the other one would have its proxy take the server for dead.
	healthBytes = 8 << 20
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
	request int64 // bytes that the one that was received last is charged
	beyond  int64 // bytes that it takes beyond what there was room for, if any
	kept    int64 // bytes of unread answers that are charged
	unread  int64 // bytes of all unread answers
	over    bool
}

// Around registers services at r so that their calls and requests are charged to the budget.
func (b *Budget) Around(r grpcserve.Registrar) grpcserve.Registrar {
	if b.all == 0 {
		return r
	}
	return registrar{r, b, plans{}}
}

type registrar struct {
	grpcserve.Registrar
	budget *Budget
	plans  plans
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	guarded := *d
	guarded.Methods, guarded.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	budget := r.budget
	if d.ServiceName == grpc_health_v1.Health_ServiceDesc.ServiceName {
		budget = New(healthBytes)
	}
	for i, m := range d.Methods {
		guarded.Methods[i].Handler = budget.method(r.plans.of(d.ServiceName, m.MethodName), m.Handler)
	}
	for i, s := range d.Streams {
		guarded.Streams[i].Handler = budget.stream(r.plans.of(d.ServiceName, s.StreamName), s)
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
				c.Done()
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
	c.unread = c.kept
	c.release()
	c.budget.leave(c.caller, c.base+c.kept)
	c.kept = 0
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
	if c.over {
		return
	}
	c.unread = now
	if now != c.kept {
		c.kept += c.budget.keep(c.caller, now-c.kept)
	}
}

// Done says that the stream's request is no longer in memory, but for what Keep has been told.
func (c *Call) Done() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

// release gives the request back. What is kept of it stays charged. c.mu is held.
func (c *Call) release() {
	if c.request == 0 && c.beyond == 0 {
		return
	}
	c.kept += c.budget.done(c.caller, c.request, c.beyond, max(0, c.unread-c.kept))
	c.request, c.beyond = 0, 0
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
	c.request = c.budget.charged(to)
	return nil
}

// shrink has the request charged for n bytes at most.
func (c *Call) shrink(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < c.request {
		c.budget.set(c.caller, c.request, n)
		c.request = n
	}
}

// await charges the request for n bytes as soon as there is room. Meanwhile it stays charged as it
// is.
func (c *Call) await(ctx context.Context, n int64) error {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return context.Canceled
	}
	from := c.request
	c.budget.again(c.caller, from, c.beyond)
	c.request, c.beyond = 0, 0 // the waiter has it
	c.mu.Unlock()
	charged, beyond, err := c.budget.wait(ctx, c.caller, from, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request, c.beyond = charged, beyond
	if c.over {
		c.release()
		return context.Canceled
	}
	return err
}

// weight is what the request may take by what it was charged for, in bytes.
func (c *Call) weight() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.request, c.beyond)
}
