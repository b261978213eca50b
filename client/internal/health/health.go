// Package health asks routers whether they are ready. One that does not know what health is, is.
package health

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Watch tells of changes until ctx ends or the server has nothing to tell.
func Watch(ctx context.Context, conn *grpc.ClientConn, tell chan<- bool) {
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	for err == nil {
		var m *grpc_health_v1.HealthCheckResponse
		if m, err = watch.Recv(); err == nil {
			select {
			case tell <- m.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Ask asks once, and waits for the answer so long. silent says that it said nothing.
func Ask(ctx context.Context, conn *grpc.ClientConn, within time.Duration) (ready, silent bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) == codes.Unimplemented {
		return true, false
	}
	return err == nil && m.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING, status.Code(err) == codes.DeadlineExceeded
}
