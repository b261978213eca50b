package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

const (
	byOther = wirev1.ClaimState_STATE_HELD_BY_OTHER
	unheld  = wirev1.ClaimState_STATE_FREE
)

// backends claim over two routers, of two stores.
type backends struct {
	a, b pushmeshv1.ClaimServiceClient
}

func newBackends(t *testing.T) *backends {
	t.Helper()
	m := harness.Start(t, harness.Options{Routers: 2, Stores: 2, DB: pgtest.URL(t)})
	conns := m.Routers(t)
	procmesh.Await(t, "both stores own shards", func() bool {
		nodes, err := pushmeshv1.NewMeshServiceClient(conns[0]).Nodes(t.Context(), &pushmeshv1.MeshServiceNodesRequest{})
		owners := 0
		for _, n := range nodes.GetNodes() {
			if n.GetTier() == pushmeshv1.Tier_TIER_STORE && n.GetShards() > 400 {
				owners++
			}
		}
		return err == nil && owners == 2
	})
	// However slow the machine is, nobody is late.
	long := durationpb.New(time.Hour)
	_, err := pushmeshv1.NewNamespaceServiceClient(conns[0]).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: "slow", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Ttl: long, WaitTtl: long, OfferTtl: long, MaxTtl: durationpb.New(2 * time.Hour)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return &backends{pushmeshv1.NewClaimServiceClient(conns[0]), pushmeshv1.NewClaimServiceClient(conns[1])}
}

// call insists, as a backend does.
func call[T interface{ GetState() *wirev1.ClaimState }](t *testing.T, do func(context.Context) (T, error)) *wirev1.ClaimState {
	t.Helper()
	resp, _, err := again(func() (T, error) { return do(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetState()
}

func acquireAt(t *testing.T, api pushmeshv1.ClaimServiceClient, resource, owner string) *wirev1.ClaimState {
	t.Helper()
	return call(t, func(ctx context.Context) (*pushmeshv1.AcquireResponse, error) {
		return api.Acquire(ctx, &pushmeshv1.AcquireRequest{Resource: resource, Owner: owner})
	})
}

func releaseAt(t *testing.T, api pushmeshv1.ClaimServiceClient, resource, owner string, token uint64) *wirev1.ClaimState {
	t.Helper()
	return call(t, func(ctx context.Context) (*pushmeshv1.ReleaseResponse, error) {
		return api.Release(ctx, &pushmeshv1.ReleaseRequest{Resource: resource, Owner: owner, Token: token})
	})
}

func is(t *testing.T, what string, st *wirev1.ClaimState, want wirev1.ClaimState_State) {
	t.Helper()
	if st.GetState() != want {
		t.Fatalf("%s: %v, want %v", what, st, want)
	}
}

// watchAt opens a Watch; what it hands back waits for a state. Where the stream ends and trying
// again helps, it is opened anew.
func watchAt(t *testing.T, api pushmeshv1.ClaimServiceClient, resource, owner string) (until func(wirev1.ClaimState_State) *wirev1.ClaimState) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	t.Cleanup(cancel)
	var stream pushmeshv1.ClaimService_WatchClient
	return func(want wirev1.ClaimState_State) *wirev1.ClaimState {
		t.Helper()
		for {
			st, _, err := again(func() (st *wirev1.ClaimState, err error) {
				if stream == nil {
					if stream, err = api.Watch(ctx, &pushmeshv1.WatchRequest{Resource: resource, Owner: owner}); err != nil {
						return nil, err
					}
				}
				resp, err := stream.Recv()
				if err != nil {
					stream = nil
				}
				return resp.GetState(), err
			})
			if err != nil {
				t.Fatal(err)
			}
			if st.GetState() == want {
				return st
			}
		}
	}
}

func TestBackendsClaim(t *testing.T) {
	m := newBackends(t)
	const resources = 24 // so many that each store has some
	want := map[string]wirev1.ClaimState_State{}
	tokens := make([]uint64, resources)
	for i := range resources {
		name := fmt.Sprint("slow/", i)
		procmesh.Await(t, "the policy holds", func() bool { // it does within a second
			first := acquireAt(t, m.a, name, "ann")
			is(t, "ann", first, granted)
			tokens[i] = first.GetToken()
			if first.GetExpiresInMs() < 3_000_000 {
				is(t, "with the time of another policy", releaseAt(t, m.a, name, "ann", first.GetToken()), released)
				return false
			}
			return true
		})
		is(t, "bob", acquireAt(t, m.b, name, "bob"), queued)
		want[name+" ann"], want[name+" bob"] = granted, queued
	}
	t.Run("list", func(t *testing.T) { m.lists(t, want) })
	t.Run("hand over", func(t *testing.T) { m.handOver(t, "slow/0", tokens[0]) })
	t.Run("taken away", func(t *testing.T) { m.takenAway(t, "slow/1", tokens[1]) })
}

// lists in pages, over resources and stores: every place once.
func (m *backends) lists(t *testing.T, want map[string]wirev1.ClaimState_State) {
	t.Helper()
	for _, limit := range []uint32{0, 7, 1} {
		got := map[string]wirev1.ClaimState_State{}
		for token, first := "", true; first || token != ""; first = false {
			resp, _, err := again(func() (*pushmeshv1.ClaimServiceListResponse, error) {
				return m.b.List(t.Context(), &pushmeshv1.ClaimServiceListRequest{Prefix: "slow/", Limit: limit, PageToken: token})
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range resp.GetPlaces() {
				k := p.GetResource() + " " + p.GetOwner()
				if _, twice := got[k]; twice {
					t.Errorf("limit %d: %s twice", limit, k)
				}
				got[k] = granted
				if p.GetToken() == 0 {
					got[k] = queued
				}
			}
			token = resp.GetNextPageToken()
		}
		if !maps.Equal(got, want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
	}
}

// handOver: who waits at one router is told at once when the hold ends over the other; three
// answers to Release are told apart; a token of the past is refused.
func (m *backends) handOver(t *testing.T, name string, token uint64) {
	t.Helper()
	until := watchAt(t, m.b, name, "bob")
	until(queued)
	wrong := releaseAt(t, m.a, name, "ann", token+1)
	if is(t, "a wrong token", wrong, byOther); wrong.GetCode() != wirev1.Code_CODE_NOT_HELD || wrong.GetHolder() != "ann" {
		t.Errorf("a wrong token: %v", wrong)
	}
	is(t, "release", releaseAt(t, m.a, name, "ann", token), released)
	next := until(granted)
	if next.GetToken() <= token {
		t.Errorf("token %d after %d", next.GetToken(), token)
	}
	renewed := call(t, func(ctx context.Context) (*pushmeshv1.RenewResponse, error) {
		return m.b.Renew(ctx, &pushmeshv1.RenewRequest{Resource: name, Owner: "bob", Token: next.GetToken()})
	})
	is(t, "bob renews", renewed, granted)
	_, _, err := again(func() (*pushmeshv1.RenewResponse, error) {
		return m.a.Renew(t.Context(), &pushmeshv1.RenewRequest{Resource: name, Owner: "ann", Token: token})
	})
	if code.Of(err) != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("a token of the past renews: %v", err)
	}
	is(t, "another holds", releaseAt(t, m.a, name, "ann", token), byOther)
	is(t, "bob's end", releaseAt(t, m.b, name, "bob", next.GetToken()), released)
	is(t, "nobody holds", releaseAt(t, m.b, name, "bob", next.GetToken()), unheld)
}

// takenAway: whoever knows owner and token may end a hold, over any router, and the owner that
// watches is told.
func (m *backends) takenAway(t *testing.T, name string, token uint64) {
	t.Helper()
	until := watchAt(t, m.a, name, "ann")
	until(granted)
	is(t, "release", releaseAt(t, m.b, name, "ann", token), released)
	if st := until(released); st.GetToken() != token {
		t.Errorf("told %v", st)
	}
	if st := until(byOther); st.GetHolder() != "bob" {
		t.Errorf("then %v", st)
	}
}
