package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/claim"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// contest is one resource: who holds it, and who waits, by their clients.
type contest struct {
	t        *testing.T
	resource string
	api      pushmeshv1.ClaimServiceClient
	claims   []*claim.Place // in the order in which they came
	want     []string       // their places
}

// place as List says it: an owner, and its token.
func place(owner string, token uint64) string { return fmt.Sprintf("%s token %d", owner, token) }

// contend has some subscribers claim a resource, one after the other.
func contend(t *testing.T, m *procmesh.Mesh, api pushmeshv1.ClaimServiceClient, resource string, n int) *contest {
	t.Helper()
	c := &contest{t: t, resource: resource, api: api}
	for i := range n {
		sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, ClientID: fmt.Sprintf("c%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closing.Close(sub) })
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		cl, err := claim.Join(ctx, sub, resource)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		c.claims = append(c.claims, cl)
		c.want = append(c.want, place("client:"+fmt.Sprintf("c%d", i), cl.Token()))
	}
	if !c.claims[0].Held() {
		t.Fatalf("%s: the first does not hold it", resource)
	}
	return c
}

// unchanged waits until the places are told, and fails where they are not what they were, or
// somebody was told otherwise.
func (c *contest) unchanged(after string) {
	c.t.Helper()
	var got []string
	procmesh.Await(c.t, c.resource+" is listed", func() bool {
		res, err := c.api.List(c.t.Context(), &pushmeshv1.ClaimServiceListRequest{Resource: c.resource})
		got = nil
		for _, p := range res.GetPlaces() {
			got = append(got, place(p.GetOwner(), p.GetToken()))
		}
		return err == nil
	})
	if !slices.Equal(got, c.want) {
		c.t.Errorf("after %s: %q, before %q", after, got, c.want)
	}
	for i, cl := range c.claims {
		if err := cl.Err(); err != nil {
			c.t.Errorf("after %s: c%d was told %v", after, i, err)
		}
	}
	procmesh.Await(c.t, "the holder knows that it holds "+c.resource, c.claims[0].Held)
}

// A hold and the line behind it stay as they are, token and order, while the edges, the routers,
// the stores and the database are killed one after the other: those who come back within the grace
// have their places. Then each has its turn, in order, with tokens that grow.
func TestHoldAndLineSurviveWhatDies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := procmesh.Start(t, procmesh.Options{Edges: 2, Stores: 2, DB: db.URL()})
	apis, err := Dial(m.RouterAddrs...)
	if err != nil {
		t.Fatal(err)
	}
	namespace(t, m, "job", &pushmeshv1.ClaimPolicy{Ttl: durationpb.New(10 * time.Minute), Grace: durationpb.New(10 * time.Minute), OfferTtl: durationpb.New(5 * time.Minute), Clients: true})
	spread(t, apis[0], "job", Rules{Holders: 1}, 10*time.Minute)
	procmesh.Await(t, "clients may claim", func() bool {
		c, _ := wireclient.Connect(t, m.EdgeAddrs[0], &wirev1.Hello{})
		c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: 1, Resource: "job/may", Op: wirev1.Claim_OP_CHECK})
		ft, _, err := c.Next(wireclient.Patience)
		return err == nil && ft == wirev1.FrameType_FRAME_TYPE_CLAIM_STATE
	})
	var all []*contest
	for i := range 4 { // of both stores, nearly always
		all = append(all, contend(t, m, apis[0], fmt.Sprintf("job/%d", i), 4))
	}
	kill := func(p *procmesh.Process) func() error {
		return func() error { p.Kill(); return p.Start() }
	}
	for _, d := range []struct {
		name string
		die  func() error
	}{
		{"an edge was killed", kill(m.Edges[0])},
		{"the other edge was killed", kill(m.Edges[1])},
		{"the router was killed", kill(m.Routers[0])},
		{"a store was killed", kill(m.Stores[0])},
		{"the other store was killed", kill(m.Stores[1])},
		{"the database was killed", func() error { return errors.Join(db.Kill(), db.Restart()) }},
	} {
		if err := d.die(); err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			c.unchanged(d.name)
		}
	}
	m.WaitReady(t)
	for _, c := range all {
		c.handOver()
	}
}

// handOver has each release in turn.
func (c *contest) handOver() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), wireclient.Patience)
	defer cancel()
	last := uint64(0)
	for i, cl := range c.claims {
		if err := cl.Wait(ctx); err != nil {
			c.t.Fatalf("%s: c%d: %v", c.resource, i, err)
		}
		token := cl.Token()
		if token <= last {
			c.t.Errorf("%s: c%d has token %d, the one before it %d", c.resource, i, token, last)
		}
		last = token
		for j, later := range c.claims[i+1:] {
			if later.Held() {
				c.t.Errorf("%s: c%d holds it together with c%d", c.resource, i+1+j, i)
			}
		}
		if err := cl.Release(ctx); err != nil {
			c.t.Fatalf("%s: c%d: release: %v", c.resource, i, err)
		}
	}
}
