package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	revokedConnections = 1000
	revokedEdges       = 3
	// revokePatience is for how long connections are waited for that should end within a second.
	revokePatience = time.Minute
)

// revoke has users with connections at several edges revoked, one in each round.
func (b *bench) revoke(ctx context.Context) (err error) {
	defer try.Catch(&err)
	is, end := tokentest.Open()
	defer end()
	file := try.Get(is.Write(string(b.Dir)))
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, revokedEdges, "--issuers", file, "--outbound-allow", "127.0.0.1"))
	defer m.Stop()
	conn := try.Get(grpc.NewClient(m.Router.Addr, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer func() { err = errors.Join(err, conn.Close()) }()
	api := pushmeshv1.NewAccessServiceClient(conn)
	var took []float64
	for round := range b.Rounds {
		user := fmt.Sprint("user-", round)
		token := is.Token(user, map[string]any{"pm_sub": []string{"bench/#"}, "iat": time.Now().Add(-time.Minute).Unix()})
		var crowds []*crowd
		for i, edge := range m.Edges {
			n := revokedConnections / revokedEdges
			if i == 0 {
				n += revokedConnections % revokedEdges
			}
			c := try.Get(connect(ctx, edge.Addr, n, nil, "bench/all", token))
			defer c.close()
			crowds = append(crowds, c)
		}
		began := time.Now()
		try.Get(api.Revoke(ctx, &pushmeshv1.AccessServiceRevokeRequest{User: user}))
		try.Do(gone(ctx, crowds))
		took = append(took, float64(time.Since(began).Milliseconds()))
	}
	b.Add(table.AtMost(fmt.Sprintf("revocation of a user with %d live subscriptions over %d edges, until the last is closed", revokedConnections, revokedEdges),
		table.Median(took), "ms", 1000, fmt.Sprintf("%.0f", took)))
	return nil
}

// gone waits until all connections have ended.
func gone(ctx context.Context, crowds []*crowd) error {
	var all sync.WaitGroup
	for _, c := range crowds {
		all.Go(c.ended.Wait)
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	late := time.NewTimer(revokePatience)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return fmt.Errorf("connections of a revoked user are there after %v", revokePatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}
