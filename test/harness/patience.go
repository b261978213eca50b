package harness

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// patience is how long anything may take that must happen; a busy machine is no failure.
const patience = 2 * time.Minute

// again reports whether an answer means that the same call, a moment later, is what a client makes:
// after a machine stood still the tiers may not know of each other for a moment.
func again(c wirev1.Code) bool {
	return c == wirev1.Code_CODE_UNAVAILABLE || c == wirev1.Code_CODE_OVERLOADED
}

// insist repeats a call that was answered so.
func insist(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := call(ctx, method, req, reply, conn, opts...)
		if !again(code.Of(err)) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
