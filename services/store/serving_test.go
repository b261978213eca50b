package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// patience is how long a test waits for what must come, on a machine as busy as may be.
const patience = 2 * time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until done.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// later reports whether an answer says no more than to come back: what a client does then, a test
// does too. The machine may stand still for longer than a store waits for its database.
func later(c wirev1.Code) bool { return c == wirev1.Code_CODE_UNAVAILABLE }

// serving starts a store that runs until the test ends.
func serving(t testing.TB, s Settings) *Store {
	t.Helper()
	st := started(t, s)
	t.Cleanup(func() { need(t, st.Stop(within(t))) })
	return st
}

// started starts a store, which owns its shards where it is alone.
func started(t testing.TB, s Settings) *Store {
	t.Helper()
	s.Listen, s.HTTP, s.DBStall, s.PlainTiers = "127.0.0.1:0", "127.0.0.1:0", 10*time.Second, true
	st, err := New(within(t), s)
	need(t, err)
	need(t, st.Start(within(t)))
	if s.Standalone && len(s.ShardDBs) == 0 {
		need(t, st.core.log.Load().Ready(within(t)))
	}
	return st
}

// dial makes a client that asks again where it is told to.
func dial(t testing.TB, addr string) meshv1.StoreServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			for {
				err := invoke(ctx, method, req, reply, conn, opts...)
				if !later(code.Of(err)) {
					return err
				}
				select {
				case <-ctx.Done():
					return err
				case <-time.After(20 * time.Millisecond):
				}
			}
		}))
	need(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return meshv1.NewStoreServiceClient(conn)
}

// moveShard moves a topic's shard, again where a database was not reached in time.
func moveShard(t testing.TB, home string, others map[string]string, name, to string) {
	t.Helper()
	shard := topic.Shard(name)
	eventually(t, "the shard is moved", func() bool {
		err := MoveShard(within(t), home, others, shard, shard, to, quiet())
		if err != nil && !late(err) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// late reports whether a move only took too long: it is to be done again.
func late(err error) bool {
	return err != nil && (later(code.Of(err)) || strings.Contains(err.Error(), "could be reached within"))
}
