package e2e

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client/claim"
	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// seats lets clients claim seat/# on every edge. Offers are never passed on for a machine that is
// slow.
func seats(t testing.TB, router grpc.ClientConnInterface, edges []string, p *pushmeshv1.ClaimPolicy) {
	t.Helper()
	p.Clients, p.OfferTtl = true, durationpb.New(patient)
	_, err := pushmeshv1.NewNamespaceServiceClient(router).Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: p}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range edges {
		c := newClaimant(t, addr, "")
		procmesh.Await(t, "clients may claim", func() bool {
			c.send(&wirev1.Claim{Resource: "seat/probe", Op: wirev1.Claim_OP_CHECK})
			ft, body, err := c.Next(wireclient.Patience)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := wireclient.Frame(ft, body); err != nil {
				t.Fatal(err)
			} else if e, ok := m.(*wirev1.Error); ok && e.GetCode() != wirev1.Code_CODE_FORBIDDEN && e.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
				t.Fatal(e)
			}
			return ft == wirev1.FrameType_FRAME_TYPE_CLAIM_STATE
		})
	}
}

// claimant is a client that claims.
type claimant struct {
	*wireclient.Client
	t  testing.TB
	id uint32
}

func newClaimant(t testing.TB, addr, id string) *claimant {
	t.Helper()
	c, _ := wireclient.Connect(t, addr, &wirev1.Hello{ClientId: id})
	return &claimant{Client: c, t: t}
}

func (c *claimant) send(m *wirev1.Claim) {
	c.t.Helper()
	c.id++
	m.Id = c.id
	c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, m)
}

// ask sends a Claim for seat/1 and waits for a state.
func (c *claimant) ask(m *wirev1.Claim, want wirev1.ClaimState_State) *wirev1.ClaimState {
	c.t.Helper()
	m.Resource = "seat/1"
	c.send(m)
	return c.until(m.GetId(), want)
}

// until reads states until one of those wanted comes; new positions in the line are passed over.
func (c *claimant) until(id uint32, want ...wirev1.ClaimState_State) *wirev1.ClaimState {
	c.t.Helper()
	for {
		st := wireclient.Expect(c.Client, wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, &wirev1.ClaimState{})
		switch {
		case slices.Contains(want, st.GetState()) && st.GetId() == id:
			return st
		case st.GetState() != wirev1.ClaimState_STATE_QUEUED:
			c.t.Fatalf("got %v, want %v under %d", st, want, id)
		}
	}
}

const (
	granted  = wirev1.ClaimState_STATE_GRANTED
	queued   = wirev1.ClaimState_STATE_QUEUED
	lost     = wirev1.ClaimState_STATE_LOST
	released = wirev1.ClaimState_STATE_RELEASED
)

// Whoever is next is told by push, on whichever edge: when the holder releases, is away for longer
// than the grace, or lets its hold expire, of which it is told itself.
func TestClaimsPassOn(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	seats(t, m.Router(t), m.EdgeAddrs, &pushmeshv1.ClaimPolicy{Grace: durationpb.New(200 * time.Millisecond), Ttl: durationpb.New(patient), MaxTtl: durationpb.New(patient)})
	a, b := newClaimant(t, m.EdgeAddrs[0], "a"), newClaimant(t, m.EdgeAddrs[1], "b")
	first := a.ask(&wirev1.Claim{}, granted)
	if at := b.ask(&wirev1.Claim{}, queued); at.GetPosition() != 1 || at.GetHolder() != "client:a" {
		t.Fatal(at)
	}
	a.ask(&wirev1.Claim{Op: wirev1.Claim_OP_RELEASE, Token: first.GetToken()}, released)
	second := b.until(1, granted)
	if second.GetToken() <= first.GetToken() {
		t.Fatalf("token %d after %d", second.GetToken(), first.GetToken())
	}
	b.ask(&wirev1.Claim{Op: wirev1.Claim_OP_RENEW, Token: second.GetToken()}, granted)
	a.ask(&wirev1.Claim{TtlMs: 6000}, queued)
	b.Close()
	third := a.until(3, granted)
	a.ask(&wirev1.Claim{Op: wirev1.Claim_OP_RENEW, Token: third.GetToken()}, granted)
	b = newClaimant(t, m.EdgeAddrs[0], "b")
	b.ask(&wirev1.Claim{}, queued)
	if end := a.until(3, lost); end.GetToken() != third.GetToken() || end.GetCode() != wirev1.Code_CODE_EXPIRED {
		t.Fatal(end)
	}
	if last := b.until(1, granted); last.GetToken() <= third.GetToken() {
		t.Fatalf("token %d after %d", last.GetToken(), third.GetToken())
	}
	a.send(&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RENEW, Token: third.GetToken()})
	if e := a.Error(); e.GetCode() != wirev1.Code_CODE_NOT_HELD {
		t.Fatal(e)
	}
}

// Who comes back within the grace, on another edge, has its token and its place in the line.
func TestClaimsOutliveConnections(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Edges: 2})
	seats(t, m.Router(t), m.EdgeAddrs, &pushmeshv1.ClaimPolicy{Grace: durationpb.New(patient), Ttl: durationpb.New(patient), MaxTtl: durationpb.New(patient)})
	names := []string{"a", "b", "c"}
	var all [3]*claimant
	for i, name := range names {
		all[i] = newClaimant(t, m.EdgeAddrs[0], name)
	}
	first := all[0].ask(&wirev1.Claim{}, granted)
	for i, c := range all[1:] {
		if st := c.ask(&wirev1.Claim{}, queued); st.GetPosition() != uint32(i+1) {
			t.Fatal(st)
		}
	}
	for i, name := range names {
		all[i].Close()
		all[i] = newClaimant(t, m.EdgeAddrs[1], name)
	}
	if again := all[0].ask(&wirev1.Claim{Op: wirev1.Claim_OP_RENEW, Token: first.GetToken()}, granted); again.GetToken() != first.GetToken() {
		t.Fatal(again)
	}
	for i := 2; i > 0; i-- { // in the other order
		if st := all[i].ask(&wirev1.Claim{}, queued); st.GetPosition() != uint32(i) {
			t.Fatalf("%s is at %v", names[i], st)
		}
	}
	all[0].ask(&wirev1.Claim{Op: wirev1.Claim_OP_RELEASE, Token: first.GetToken(), Successor: "client:c"}, released)
	all[2].until(1, granted)
}

// An edge is killed: the SDK's claims go on over another, with their token and their place.
func TestClaimsOutliveTheirEdge(t *testing.T) {
	t.Parallel()
	m := procmesh.Start(t, procmesh.Options{Edges: 2})
	router, err := grpc.NewClient(m.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = router.Close() })
	seats(t, router, m.EdgeAddrs, &pushmeshv1.ClaimPolicy{Grace: durationpb.New(patient), Ttl: durationpb.New(patient), MaxTtl: durationpb.New(patient)})
	type party struct {
		*claim.Place
		sub  *pushmesh.Subscriber
		edge atomic.Pointer[string]
	}
	join := func(name string) *party {
		p := &party{}
		var err error
		p.sub, err = pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
			Addrs: m.EdgeAddrs, ClientID: name, MaxBackoff: 200 * time.Millisecond, OnConnect: func(c pushmesh.Connection) { p.edge.Store(&c.Edge) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = closing.Close(p.sub) })
		ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
		defer cancel()
		if p.Place, err = claim.Join(ctx, p.sub, "seat/1"); err != nil {
			t.Fatal(err)
		}
		return p
	}
	holds, waits := join("a"), join("b")
	token := holds.Token()
	if !holds.Held() || waits.Position() != 1 {
		t.Fatalf("held %v, the other is at %d", holds.Held(), waits.Position())
	}
	for _, p := range []*party{holds, waits} {
		edge := m.Edges[slices.IndexFunc(m.Edges, func(e *procmesh.Process) bool { return e.Name == *p.edge.Load() })]
		before := p.sub.Stats().Connects
		edge.Kill()
		procmesh.Await(t, "it is elsewhere", func() bool { return p.sub.Stats().Connects > before })
		if err := edge.Start(); err != nil {
			t.Fatal(err)
		}
		m.WaitReady(t)
	}
	if !holds.Held() || holds.Token() != token || waits.Err() != nil {
		t.Fatalf("held %v with token %d, was %d; %v", holds.Held(), holds.Token(), token, waits.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), wireclient.Patience)
	defer cancel()
	if err := holds.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := waits.Wait(ctx); err != nil || waits.Token() <= token {
		t.Fatalf("%v, token %d after %d", err, waits.Token(), token)
	}
}

// BenchmarkClaimHandOver is from a RELEASE on one edge to the push at the socket of who is next, on
// another.
func BenchmarkClaimHandOver(b *testing.B) {
	for _, db := range []string{"sqlite", "postgres"} {
		b.Run(db, func(b *testing.B) {
			o := harness.Options{Edges: 2}
			if db == "postgres" {
				o.DB = pgtest.URL(b)
			}
			m := harness.Start(b, o)
			seats(b, m.Router(b), m.EdgeAddrs, &pushmeshv1.ClaimPolicy{})
			holds, waits := newClaimant(b, m.EdgeAddrs[0], "a"), newClaimant(b, m.EdgeAddrs[1], "b")
			st := holds.ask(&wirev1.Claim{}, granted)
			var took []time.Duration
			for b.Loop() {
				waits.ask(&wirev1.Claim{}, queued)
				began := time.Now()
				holds.send(&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: st.GetToken()})
				next := waits.until(waits.id, granted)
				took = append(took, time.Since(began))
				holds.until(holds.id, released)
				waits.ask(&wirev1.Claim{Op: wirev1.Claim_OP_RENEW, Token: next.GetToken()}, granted)
				holds, waits, st = waits, holds, next
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "p99-ms")
		})
	}
}

// A client's resources have a quota at the stores, which refuse further ones by name of the flag;
// who gives one up may have another.
func TestClaimsHaveAQuota(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{Change: func(s *inprocess.Settings) { s.Stores[0].UserClaims = 2 }})
	seats(t, m.Router(t), m.EdgeAddrs, &pushmeshv1.ClaimPolicy{})
	ann, bob := newClaimant(t, m.EdgeAddrs[0], "ann"), newClaimant(t, m.EdgeAddrs[0], "bob")
	acquire := func(c *claimant, resource string) *wirev1.ClaimState {
		c.send(&wirev1.Claim{Resource: resource})
		return c.until(c.id, wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED)
	}
	first := acquire(ann, "seat/1")
	acquire(ann, "seat/2")
	refused := func() {
		t.Helper()
		ann.send(&wirev1.Claim{Resource: "seat/3"})
		if e := ann.Error(); e.GetRef() != ann.id || e.GetCode() != wirev1.Code_CODE_RATE_LIMITED || !strings.Contains(e.GetMessage(), "--user-claims") || e.GetRetryAfterMs() == 0 {
			t.Errorf("a third resource: %v", e)
		}
	}
	refused()
	acquire(bob, "seat/3")
	ann.send(&wirev1.Claim{Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: first.GetToken()})
	ann.until(ann.id, wirev1.ClaimState_STATE_RELEASED)
	acquire(ann, "seat/3")
}
