package meshid

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Header names the caller's mesh, by its id, in every call between tiers. Calls of command-line
// tools lack it, and calls of processes that do not know their mesh yet.
const Header = "pushmesh-mesh"

// retryAfter is the time until the caller has asked the stores again which of them owns which
// shard.
const retryAfter = 250 * time.Millisecond

// DialOptions name the mesh in every call and stream, once it is known.
func (i *Identity) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(i.named(ctx), method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(i.named(ctx), desc, conn, method, opts...)
		}),
	}
}

func (i *Identity) named(ctx context.Context) context.Context {
	if m, known := i.Mesh(); known {
		return metadata.AppendToOutgoingContext(ctx, Header, m.ID)
	}
	return ctx
}

// ServerOptions refuse calls and streams that name another mesh: an address may belong to another
// mesh since the caller learned it. The caller may try again, since it will have learned the right
// address by then.
func (i *Identity) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := i.admit(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := i.admit(stream.Context()); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}

func (i *Identity) admit(ctx context.Context) error {
	named := metadata.ValueFromIncomingContext(ctx, Header)
	m, known := i.Mesh()
	for _, id := range named {
		if known && id != m.ID {
			return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the call is for the mesh with the id "+id+", this process belongs to "+m.String()+
				": the address belongs to another mesh now")
		}
	}
	return nil
}
