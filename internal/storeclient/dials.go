package storeclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxStores bounds the connections: an owner map that names more is a fault somewhere.
const maxStores = 256

// maxMessage is the largest answer taken; stores cut theirs well below it.
const maxMessage = 16 << 20

// dials owns one connection for each address. It is safe for concurrent use.
type dials struct {
	options []grpc.DialOption

	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn
	closed bool
}

func newDials(more []grpc.DialOption) *dials {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		// A store that comes back is found within half a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithChainUnaryInterceptor(closedIsAway),
		// An idle connection costs a store little; a first call that has to connect costs the
		// caller.
		grpc.WithIdleTimeout(0),
	}
	return &dials{options: append(options, more...), conns: map[string]*grpc.ClientConn{}}
}

// to is the stub for addr, whose connection is made where there is none yet.
func (d *dials) to(addr string) (meshv1.StoreServiceClient, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "the store client has stopped")
	}
	if conn := d.conns[addr]; conn != nil {
		return meshv1.NewStoreServiceClient(conn), nil
	}
	if len(d.conns) >= maxStores {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, fmt.Sprintf("more than %d stores", maxStores))
	}
	conn, err := grpc.NewClient(addr, d.options...)
	if err != nil {
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, fmt.Sprintf("store %q: %v", addr, err))
	}
	d.conns[addr] = conn
	return meshv1.NewStoreServiceClient(conn), nil
}

func closedIsAway(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return away(ctx, invoke(ctx, method, req, reply, conn, opts...))
}

// away is the error of a call. A connection to a store that owns nothing any more is closed, which
// cancels the calls under way: to their callers, who did not cancel them, the store is away.
func away(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && status.Code(err) == codes.Canceled {
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the store is gone: its connection was closed")
	}
	return err
}

// keepOnly closes the connections to all other addresses.
func (d *dials) keepOnly(wanted map[string]bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for addr, conn := range d.conns {
		if !wanted[addr] {
			errs = append(errs, conn.Close())
			delete(d.conns, addr)
		}
	}
	return errors.Join(errs...)
}

func (d *dials) close() error {
	err := d.keepOnly(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return err
}
