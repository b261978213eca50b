package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// claimNode is an edge: its stream to one store, which it opens again whenever it ends.
type claimNode struct {
	t      testing.TB
	c      meshv1.StoreServiceClient
	name   string
	pushes chan *meshv1.ClaimPush

	mu  sync.Mutex
	ref uint64
	// nil: none
	stream  grpc.BidiStreamingClient[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]
	waiting map[uint64]chan *meshv1.ClaimResult
}

// newClaimNode makes a node; its streams end with the test.
func newClaimNode(t testing.TB, c meshv1.StoreServiceClient, name string) *claimNode {
	return &claimNode{t: t, c: c, name: name, pushes: make(chan *meshv1.ClaimPush, 100_000)}
}

// open is the present stream. n.mu is held.
func (n *claimNode) open() error {
	if n.stream != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := n.c.Claims(ctx)
	if err == nil {
		err = stream.Send(&meshv1.StoreServiceClaimsRequest{Node: n.name, Incarnation: 1})
	}
	if err != nil {
		cancel()
		return err
	}
	waiting, ended := map[uint64]chan *meshv1.ClaimResult{}, make(chan struct{})
	n.stream, n.waiting = stream, waiting
	go func() {
		defer close(ended)
		for {
			m, err := stream.Recv()
			n.mu.Lock()
			for _, r := range m.GetResults() {
				waiting[r.GetRef()] <- r
				delete(waiting, r.GetRef())
			}
			if err != nil {
				if n.stream == stream {
					n.stream = nil
				}
				for _, c := range waiting {
					close(c)
				}
				clear(waiting)
				n.mu.Unlock()
				return
			}
			n.mu.Unlock()
			for _, p := range m.GetPushes() {
				n.pushes <- p
			}
		}
	}()
	n.t.Cleanup(func() { cancel(); <-ended })
	return nil
}

// begin sends operations. A channel that is closed: the stream ended first.
func (n *claimNode) begin(ops ...*meshv1.ClaimOp) []chan *meshv1.ClaimResult {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := make([]chan *meshv1.ClaimResult, len(ops))
	for i := range answers {
		answers[i] = make(chan *meshv1.ClaimResult, 1)
	}
	err := n.open()
	if err == nil {
		for i, o := range ops {
			n.ref++
			o.Ref = n.ref
			n.waiting[o.Ref] = answers[i]
		}
		err = n.stream.Send(&meshv1.StoreServiceClaimsRequest{Ops: ops})
	}
	if err != nil {
		for i, o := range ops {
			if _, is := n.waiting[o.GetRef()]; is && n.stream != nil {
				continue // the receiver closes it
			}
			close(answers[i])
		}
	}
	return answers
}

// do repeats an operation until it is done or refused for good.
func (n *claimNode) do(o *meshv1.ClaimOp) *meshv1.ClaimResult {
	n.t.Helper()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(patience); ; <-pause.C {
		r := <-n.begin(o)[0]
		switch r.GetCode() {
		case wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_CONFLICT:
		default:
			if r != nil {
				return r
			}
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("not within %s: %v", patience, o)
		}
	}
}

// next is the next push that an owner gets with a state.
func (n *claimNode) next(owner string, state wirev1.ClaimState_State) *wirev1.ClaimState {
	n.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case p := <-n.pushes:
			if p.GetOwner() == owner && p.GetState().GetState() == state {
				return p.GetState()
			}
		case <-timeout:
			n.t.Fatalf("%s is not told %s", owner, state)
		}
	}
}

func claimOp(kind meshv1.ClaimOp_Kind, resource, owner string, token uint64) *meshv1.ClaimOp {
	return &meshv1.ClaimOp{Kind: kind, Resource: resource, Owner: owner, Token: token}
}

// acquireTold is an ACQUIRE by the connection conn of a subscriber.
func acquireTold(resource, owner string, conn uint64) *meshv1.ClaimOp {
	return &meshv1.ClaimOp{Resource: resource, Owner: owner, Conn: conn, Bound: true}
}

// desks makes a policy for desk/… in which nothing ends because a test is slow, and waits until
// stores know it.
func desks(t testing.TB, stores ...meshv1.StoreServiceClient) {
	t.Helper()
	hour := durationpb.New(time.Hour)
	_, err := stores[0].PutNamespace(within(t), &meshv1.PutNamespaceRequest{Namespace: &pushmeshv1.Namespace{Prefix: "desk", Policy: &pushmeshv1.Policy{
		Durable: true, Retention: hour, Claims: &pushmeshv1.ClaimPolicy{Ttl: hour, MaxTtl: durationpb.New(2 * time.Hour), Grace: hour, WaitTtl: hour, OfferTtl: hour},
	}}})
	need(t, err)
	for i, c := range stores {
		n := newClaimNode(t, c, "router:probe")
		eventually(t, "the policy is known", func() bool {
			for k := range topic.Shards { // in a shard of that store
				o := claimOp(meshv1.ClaimOp_KIND_ACQUIRE, fmt.Sprint("desk/probe/", i, "/", k), "probe", 0)
				o.TtlMs = uint32((2 * time.Hour).Milliseconds())
				switch r := <-n.begin(o)[0]; {
				case r == nil:
					return false
				case r.GetCode() != wirev1.Code_CODE_CONFLICT:
					return r.GetCode() == wirev1.Code_CODE_OK
				}
			}
			return false
		})
	}
}

func claimIs(t testing.TB, r *meshv1.ClaimResult, want wirev1.ClaimState_State) *wirev1.ClaimState {
	t.Helper()
	if r.GetCode() != wirev1.Code_CODE_OK || r.GetState().GetState() != want {
		t.Fatalf("%v, want %s", r, want)
	}
	return r.GetState()
}
