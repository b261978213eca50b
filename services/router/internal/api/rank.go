package api

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// maxRankMessage lets 100,000 candidates with their features through.
const maxRankMessage = 64 << 20

// Rank is pushmesh.v1.RankService: it hands jobs to the compute tier. It is a lifecycle.Part that owns a connection to each node.
type Rank struct {
	pushmeshv1.UnimplementedRankServiceServer
	caller string
	addrs  []string
	dial   []grpc.DialOption
	next   atomic.Uint64
	conns  []*grpc.ClientConn
}

// NewRank makes the service for compute nodes at addrs.
func NewRank(caller string, addrs []string, dial ...grpc.DialOption) *Rank {
	return &Rank{caller: caller, addrs: addrs, dial: dial}
}

// Start makes the connections; it does not wait for them.
func (r *Rank) Start(context.Context) error {
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxRankMessage), grpc.MaxCallRecvMsgSize(maxRankMessage)),
		grpc.WithIdleTimeout(0),
	}, r.dial...)
	for _, addr := range r.addrs {
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			return errors.Join(fmt.Errorf("compute %q: %w", addr, err), r.Stop(context.Background()))
		}
		conn.Connect()
		r.conns = append(r.conns, conn)
	}
	return nil
}

// Stop closes the connections.
func (r *Rank) Stop(context.Context) error {
	var errs []error
	for _, conn := range r.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Check is a health check: nil while a compute node is connected.
func (r *Rank) Check() error {
	for _, conn := range r.conns {
		if conn.GetState() == connectivity.Ready {
			return nil
		}
	}
	return fmt.Errorf("none of %d compute nodes is connected: ranking is refused", len(r.conns))
}

// Rank implements RankService. A node that can't be had is passed over; a node that is full refuses for all, since the
// others get the same load.
func (r *Rank) Rank(ctx context.Context, req *pushmeshv1.RankRequest) (*pushmeshv1.RankResponse, error) {
	job := &meshv1.RankJobRequest{Caller: r.caller, Rank: req}
	first := r.next.Add(1)
	for i := range r.conns {
		conn := r.conns[(first+uint64(i))%uint64(len(r.conns))]
		if state := conn.GetState(); state != connectivity.Ready && i < len(r.conns)-1 {
			continue
		}
		resp, err := meshv1.NewComputeServiceClient(conn).RankJob(ctx, job)
		if err == nil {
			return resp.GetRank(), nil
		}
		if ctx.Err() != nil || code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || i == len(r.conns)-1 {
			return nil, err
		}
	}
	return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "there is no compute node")
}
