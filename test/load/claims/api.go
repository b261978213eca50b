package claims

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// api is a connection to the router.
type api struct {
	pushmeshv1.ClaimServiceClient
	conn *grpc.ClientConn
}

// Namespaces of the bench: of plain claims, where anybody waits for as long as a run lasts, and of
// those that ask before a grant.
const (
	plain  = "bench"
	asking = "asking"
)

// prepare connects, says how the bench's resources are claimed, and waits until one is.
func (b *bench) prepare(ctx context.Context) (err error) {
	defer try.Catch(&err)
	for range b.conns {
		conn := try.Get(suite.Dial(b.mesh.Router.Addr))
		b.apis = append(b.apis, api{pushmeshv1.NewClaimServiceClient(conn), conn})
	}
	try.Do(b.namespace(ctx, plain, nil))
	return suite.Poll(ctx, time.Minute, func() error { return b.pair("ready")(ctx, 0, 0) })
}

// namespace puts a policy of claims, with a call before each grant or without.
func (b *bench) namespace(ctx context.Context, prefix string, before *pushmeshv1.ClaimPrepare) error {
	_, err := pushmeshv1.NewNamespaceServiceClient(b.apis[0].conn).Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: prefix, Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{
			WaitTtl: durationpb.New(time.Hour), OfferTtl: durationpb.New(time.Minute), MaxWaiting: 100_000, Clients: true, Prepare: before,
		}},
	}})
	return err
}

// acquire must be granted at once.
func (a api) acquire(ctx context.Context, resource, owner string, ttl time.Duration) (_ uint64, err error) {
	defer try.Catch(&err)
	st := try.Get(a.ask(ctx, resource, owner, ttl))
	if st.GetState() != wirev1.ClaimState_STATE_GRANTED {
		return 0, fmt.Errorf("acquire of %s by %s: %v", resource, owner, st)
	}
	return st.GetToken(), nil
}

func (a api) ask(ctx context.Context, resource, owner string, ttl time.Duration) (*wirev1.ClaimState, error) {
	res, err := a.Acquire(ctx, &pushmeshv1.AcquireRequest{Resource: resource, Owner: owner, Ttl: durationpb.New(ttl)})
	if err != nil {
		return nil, fmt.Errorf("acquire of %s by %s: %w", resource, owner, err)
	}
	return res.GetState(), nil
}

// join must have to wait.
func (a api) join(ctx context.Context, resource, owner string) error {
	st, err := a.ask(ctx, resource, owner, time.Minute)
	if err == nil && st.GetState() != wirev1.ClaimState_STATE_QUEUED {
		err = fmt.Errorf("%s at %s: %v where it was to wait", owner, resource, st)
	}
	return err
}

// release must end a hold.
func (a api) release(ctx context.Context, resource, owner string, token uint64) error {
	res, err := a.Release(ctx, &pushmeshv1.ReleaseRequest{Resource: resource, Owner: owner, Token: token})
	if err == nil && res.GetState().GetState() != wirev1.ClaimState_STATE_RELEASED {
		err = fmt.Errorf("release of %s by %s: %v", resource, owner, res.GetState())
	}
	return err
}

// leave must end a wait.
func (a api) leave(ctx context.Context, resource, owner string) error {
	res, err := a.Leave(ctx, &pushmeshv1.LeaveRequest{Resource: resource, Owner: owner})
	if err == nil && res.GetState().GetState() != wirev1.ClaimState_STATE_RELEASED {
		err = fmt.Errorf("%s leaves %s: %v", owner, resource, res.GetState())
	}
	return err
}

// granted is a stream that says when an owner has its turn.
type granted struct {
	token chan uint64
	at    time.Time // when it was said; read after token
	err   error
}

// watch opens a stream of an owner that waits, and returns when the server has it. The stream ends
// with the grant, or with ctx.
func (a api) watch(ctx context.Context, resource, owner string) (_ *granted, err error) {
	defer try.Catch(&err)
	stream := try.Get(a.Watch(ctx, &pushmeshv1.WatchRequest{Resource: resource, Owner: owner}))
	first := try.Get(stream.Recv())
	g := &granted{token: make(chan uint64, 1)}
	if st := first.GetState(); st.GetState() != wirev1.ClaimState_STATE_QUEUED {
		return nil, fmt.Errorf("watch of %s by %s: %v where it was to wait", resource, owner, st)
	}
	go func() {
		defer close(g.token)
		for {
			res, err := stream.Recv()
			if err != nil {
				g.err = err
				return
			}
			if st := res.GetState(); st.GetState() == wirev1.ClaimState_STATE_GRANTED {
				g.at = time.Now()
				g.token <- st.GetToken()
				return
			}
		}
	}()
	return g, nil
}

// wait for the grant.
func (g *granted) wait(ctx context.Context) (uint64, error) {
	select {
	case token, ok := <-g.token:
		if !ok {
			return 0, fmt.Errorf("watch: %w", g.err)
		}
		return token, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
