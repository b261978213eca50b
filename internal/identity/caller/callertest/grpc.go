package callertest

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/hookv1"
)

// GRPC is a backend that is asked by gRPC, on loopback, until the test ends.
type GRPC struct {
	hookv1.UnimplementedHookServiceServer
	URL   string
	Asked atomic.Int64
	// OnConnect and OnEvaluate answer; nil: the method is not there.
	OnConnect  func(context.Context, *hookv1.ConnectRequest) (*hookv1.ConnectResponse, error)
	OnEvaluate func(context.Context, *hookv1.EvaluateRequest) (*hookv1.EvaluateResponse, error)
}

// Serve begins to answer.
func (b *GRPC) Serve(t testing.TB) *GRPC {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.URL = "grpc://" + listener.Addr().String()
	s := grpc.NewServer()
	hookv1.RegisterHookServiceServer(s, b)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

// Connect implements HookServiceServer.
func (b *GRPC) Connect(ctx context.Context, q *hookv1.ConnectRequest) (*hookv1.ConnectResponse, error) {
	b.Asked.Add(1)
	if b.OnConnect == nil {
		return b.UnimplementedHookServiceServer.Connect(ctx, q)
	}
	return b.OnConnect(ctx, q)
}

// Evaluate implements HookServiceServer.
func (b *GRPC) Evaluate(ctx context.Context, q *hookv1.EvaluateRequest) (*hookv1.EvaluateResponse, error) {
	b.Asked.Add(1)
	if b.OnEvaluate == nil {
		return b.UnimplementedHookServiceServer.Evaluate(ctx, q)
	}
	return b.OnEvaluate(ctx, q)
}
