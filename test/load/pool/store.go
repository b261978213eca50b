package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// node is a store in this process, and a connection to it.
type node struct {
	store *store.Store
	conn  *grpc.ClientConn
	api   meshv1.StoreServiceClient
}

// startNode starts the database's only store.
func startNode(ctx context.Context, s store.Settings) (_ *node, err error) {
	defer try.Catch(&err)
	s.ID, s.Listen, s.HTTP, s.Standalone, s.LogLevel, s.PlainTiers = "bench", "127.0.0.1:0", "127.0.0.1:0", true, "error", true
	st := try.Get(store.New(ctx, s))
	try.Do(st.Start(ctx))
	conn, err := suite.Dial(st.Addr())
	if err != nil {
		return nil, errors.Join(err, st.Stop(ctx))
	}
	return &node{st, conn, meshv1.NewStoreServiceClient(conn)}, nil
}

func (n *node) stop(ctx context.Context) error {
	return errors.Join(n.conn.Close(), n.store.Stop(ctx))
}

// result of a load.
type result struct {
	rate   float64 // answered each second
	took   []time.Duration
	failed int64
	why    error // one of the failures
}

// tail is the p99, in ms.
func (r *result) tail() float64 { return table.Quantile(r.took, 0.99) }

func (r *result) String() string {
	s := fmt.Sprintf("%.0f/s, p50 %.2f ms, p99 %.2f ms", r.rate, table.Quantile(r.took, 0.5), r.tail())
	if r.failed > 0 {
		s += fmt.Sprintf(", %d refused (%v)", r.failed, r.why)
	}
	return s
}

// load has callers call one after the other for a span. A refused caller pauses a little, as real
// ones do.
func load(ctx context.Context, callers int, span time.Duration, call func(ctx context.Context, caller int) error) *result {
	ctx, cancel := context.WithTimeout(ctx, span+30*time.Second)
	defer cancel()
	var failed atomic.Int64
	var why atomic.Pointer[error]
	begun := time.Now()
	took := make([][]time.Duration, callers)
	_ = suite.Each(callers, callers, func(_, i int) error {
		for time.Since(begun) < span && ctx.Err() == nil {
			at := time.Now()
			if err := call(ctx, i); err != nil {
				failed.Add(1)
				why.Store(&err)
				time.Sleep(10 * time.Millisecond)
				continue
			}
			took[i] = append(took[i], time.Since(at))
		}
		return nil
	})
	r := &result{took: slices.Concat(took...), failed: failed.Load()}
	if err := why.Load(); err != nil {
		r.why = *err
	}
	r.rate = float64(len(r.took)) / time.Since(begun).Seconds()
	return r
}
