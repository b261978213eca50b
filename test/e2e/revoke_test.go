package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// access of a router.
func access(t *testing.T, m *harness.Mesh) pushmeshv1.AccessServiceClient {
	return pushmeshv1.NewAccessServiceClient(m.Router(t))
}

// issuedAt are claims of a token that was issued some time from now.
func issuedAt(d time.Duration, more map[string]any) map[string]any {
	claims := map[string]any{"iat": time.Now().Add(d).Unix(), "pm_sub": "room/#"}
	for name, v := range more {
		claims[name] = v
	}
	return claims
}

// A user's connections end on whichever edges they are within a second of its revocation, and see
// why; a token of before is let in nowhere, not even one that an edge knows to be good; others
// stay, and so does the user with a token of afterwards. The best of some rounds counts.
func TestARevokedUserIsOutEverywhereWithinASecond(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{Edges: 3})
	api := access(t, m)
	bob := is.Token("bob", issuedAt(-time.Minute, nil))
	var others []*wireclient.Client
	enter := func(edge int, token, id string) *wireclient.Client {
		t.Helper()
		c, code := comeInAt(t, m.EdgeAddrs[edge], &wirev1.Hello{Token: token, ClientId: id, HeartbeatMs: 600_000})
		if code != wirev1.Code_CODE_OK {
			t.Fatal(code)
		}
		return c
	}
	for i := range 60 {
		others = append(others, enter(i%3, bob, "other"))
	}
	best := time.Hour
	for round := 0; best > time.Second; round++ {
		if round == 10 {
			t.Fatalf("at best after %v", best)
		}
		user := fmt.Sprint("ann-", round)
		old := is.Token(user, issuedAt(-time.Minute, nil))
		var gone sync.WaitGroup
		for i := range 30 {
			c := enter(i%3, old, "phone")
			c.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
			gone.Go(func() {
				if e := c.Error(); e.GetCode() != wirev1.Code_CODE_UNAUTHENTICATED || e.GetMessage() != "revoked: the user's tokens are revoked: left" {
					t.Errorf("told %v", e)
				}
				c.Closed()
			})
		}
		began := time.Now()
		if _, _, err := again(func() (*pushmeshv1.AccessServiceRevokeResponse, error) {
			return api.Revoke(t.Context(), &pushmeshv1.AccessServiceRevokeRequest{User: user, Reason: "left"})
		}); err != nil {
			t.Fatal(err)
		}
		gone.Wait()
		best = min(best, time.Since(began))
		for edge := range 3 {
			if _, code := comeInAt(t, m.EdgeAddrs[edge], &wirev1.Hello{Token: old}); code != wirev1.Code_CODE_UNAUTHENTICATED {
				t.Errorf("edge %d takes a token that is revoked: %v", edge, code)
			}
			enter(edge, is.Token(user, issuedAt(2*time.Second, nil)), "phone").Close()
		}
	}
	t.Logf("after %v", best)
	for _, c := range others {
		c.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	}
	for _, c := range others {
		if ft, _, err := c.Next(wireclient.Patience); err != nil || ft != wirev1.FrameType_FRAME_TYPE_PONG {
			t.Fatalf("another one: %v %v", ft, err)
		}
	}
}

// One token is void, and the user's others are not; restored, it is good again. A revoked token
// can't be refreshed to, and does not take over a session.
func TestATokenIsRevokedAndRestored(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{})
	api := access(t, m)
	token := func(jti string) string { return is.Token("ann", issuedAt(-time.Minute, map[string]any{"jti": jti})) }
	stolen, good := token("stolen"), token("good")
	thief, _ := comeIn(t, m, &wirev1.Hello{Token: stolen, ClientId: "thief"})
	ann, _ := comeIn(t, m, &wirev1.Hello{Token: good, ClientId: "ann", Session: "s"})
	ann.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})

	one := &pushmeshv1.AccessServiceRevokeRequest{Issuer: "test", TokenId: "stolen"}
	if _, err := api.Revoke(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if e := thief.Error(); e.GetCode() != wirev1.Code_CODE_UNAUTHENTICATED || !strings.HasPrefix(e.GetMessage(), "revoked:") {
		t.Errorf("told %v", e)
	}
	if _, code := comeIn(t, m, &wirev1.Hello{Token: stolen, ClientId: "thief", Session: "s"}); code != wirev1.Code_CODE_UNAUTHENTICATED {
		t.Errorf("with a revoked token: %v", code)
	}
	ann.Send(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: 2, Token: stolen})
	if e := ann.Error(); e.GetCode() != wirev1.Code_CODE_UNAUTHENTICATED || e.GetRef() != 2 {
		t.Errorf("refreshed to a revoked token: %v", e)
	}
	m.Publish(t, "room/1", "ann is here")
	if msg := ann.Message(); string(msg.GetPayload()) != "ann is here" {
		t.Errorf("ann got %v", msg)
	}
	list, err := api.List(t.Context(), &pushmeshv1.AccessServiceListRequest{})
	if all := list.GetRevocations(); err != nil || len(all) != 1 || all[0].GetTokenId() != "stolen" || all[0].GetUntil() < all[0].GetAt()+uint64((24*time.Hour-time.Minute).Microseconds()) {
		t.Errorf("listed: %v, %v", list, err)
	}
	if _, err := api.Restore(t.Context(), &pushmeshv1.AccessServiceRestoreRequest{Issuer: "test", TokenId: "stolen"}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patient); ; {
		c, code := comeIn(t, m, &wirev1.Hello{Token: stolen, ClientId: "thief"})
		if code == wirev1.Code_CODE_OK {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after it was restored: %v", code)
		}
	}
	if list, err := api.List(t.Context(), &pushmeshv1.AccessServiceListRequest{}); err != nil || len(list.GetRevocations()) != 0 {
		t.Errorf("listed after it was restored: %v, %v", list, err)
	}
}

// A revocation is found where the word of it is lost: by stores' beats, and without NATS by asking.
func TestARevocationWhoseWordIsLost(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{Proxy: true, Edges: 2})
	api := access(t, m)
	for what, lose := range map[string]func(){
		"the notices": func() {
			m.Proxy.Lose(func(subject string, _ []byte) bool { return strings.HasSuffix(subject, bus.RevocationsChanged) })
		},
		"all of NATS": func() { m.Proxy.SetDown(true) },
	} {
		user := strings.ReplaceAll(what, " ", "-")
		var all []*wireclient.Client
		for i := range 4 {
			c, code := comeInAt(t, m.EdgeAddrs[i%2], &wirev1.Hello{Token: is.Token(user, issuedAt(-time.Minute, nil)), HeartbeatMs: 600_000})
			if code != wirev1.Code_CODE_OK {
				t.Fatal(code)
			}
			all = append(all, c)
		}
		lose()
		began := time.Now()
		if _, _, err := again(func() (*pushmeshv1.AccessServiceRevokeResponse, error) {
			return api.Revoke(t.Context(), &pushmeshv1.AccessServiceRevokeRequest{User: user})
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if e := c.Error(); e.GetCode() != wirev1.Code_CODE_UNAUTHENTICATED {
				t.Errorf("%s are lost: told %v", what, e)
			}
		}
		t.Logf("%s are lost: after %v", what, time.Since(began))
		m.Proxy.Lose(nil)
		m.Proxy.SetDown(false)
	}
}

// An edge that is restarted goes by what was revoked before; while no store can tell it what that
// is, it is not ready and lets nobody in, and it goes on by itself once one can.
func TestRevocationsOutliveAnEdge(t *testing.T) {
	t.Parallel()
	is := tokentest.New(t)
	m := procmesh.Start(t, procmesh.Options{DB: pgtest.URL(t), EdgeArgs: []string{"--issuers", is.File(t), "--outbound-allow", "127.0.0.1"}})
	api := pushmeshv1.NewAccessServiceClient(plainly(t, m.RouterAddrs[0]))
	ann, bob := is.Token("ann", issuedAt(-time.Minute, nil)), is.Token("bob", issuedAt(-time.Minute, nil))
	if _, _, err := again(func() (*pushmeshv1.AccessServiceRevokeResponse, error) {
		return api.Revoke(t.Context(), &pushmeshv1.AccessServiceRevokeRequest{User: "ann"})
	}); err != nil {
		t.Fatal(err)
	}
	enters := func(token string) wirev1.Code {
		c, code := comeInAt(t, m.EdgeAddrs[0], &wirev1.Hello{Token: token})
		if c != nil {
			c.Close()
		}
		return code
	}
	edge, store := m.Edges[0], m.Stores[0]
	edge.Kill()
	restart(t, edge)
	awaitReady(t, edge)
	if a, b := enters(ann), enters(bob); a != wirev1.Code_CODE_UNAUTHENTICATED || b != wirev1.Code_CODE_OK {
		t.Errorf("after a restart ann is answered %v, bob %v", a, b)
	}
	store.Kill()
	if a, b := enters(ann), enters(bob); a != wirev1.Code_CODE_UNAUTHENTICATED || b != wirev1.Code_CODE_OK {
		t.Errorf("without a store ann is answered %v, bob %v", a, b)
	}
	edge.Kill()
	restart(t, edge)
	procmesh.Await(t, "the edge says what it misses", func() bool {
		_, body := edge.Status()
		return strings.Contains(body, "revocations: missing") && strings.Contains(body, "serving: ok")
	})
	c := wireclient.Dial(t, m.EdgeAddrs[0])
	c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Token: bob})
	if e := c.Error(); e.GetCode() != wirev1.Code_CODE_UNAVAILABLE || e.GetRetryAfterMs() == 0 {
		t.Errorf("where it is not known who is revoked: %v", e)
	}
	restart(t, store)
	awaitReady(t, edge)
	if a, b := enters(ann), enters(bob); a != wirev1.Code_CODE_UNAUTHENTICATED || b != wirev1.Code_CODE_OK {
		t.Errorf("with the store again ann is answered %v, bob %v", a, b)
	}
}

// A user's client ends where its tokens are revoked. One that begins at once with new ones comes
// in, also where their iat does not tell them from those of before.
func TestAUserComesBackWithANewToken(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{})
	putNamespace(t, m, "room", &pushmeshv1.Policy{Durable: true})
	var tokens atomic.Int64
	got := make(chan string, 100)
	begin := func() *pushmesh.Subscriber {
		sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, ClientID: "phone", Session: "s", Token: func(context.Context) (string, error) {
			return is.Token("ann", issuedAt(0, map[string]any{"jti": fmt.Sprint(tokens.Add(1))})), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Subscribe(t.Context(), "room/1", func(_ context.Context, d *pushmesh.Delivery) error {
			got <- string(d.Payload)
			return nil
		}, pushmesh.WithAck(), pushmesh.FromSession()); err != nil {
			t.Fatalf("with the tokens %d: %v", tokens.Load(), err)
		}
		return sub
	}
	sub := begin()
	m.Publish(t, "room/1", "first")
	if msg := <-got; msg != "first" {
		t.Fatalf("got %s", msg)
	}
	for i := range 3 {
		if _, _, err := again(func() (*pushmeshv1.AccessServiceRevokeResponse, error) {
			return access(t, m).Revoke(t.Context(), &pushmeshv1.AccessServiceRevokeRequest{User: "ann"})
		}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-sub.Done():
			if pushmesh.CodeOf(sub.Err()) != pushmesh.CodeUnauthenticated {
				t.Errorf("it ends with %v", sub.Err())
			}
			_ = closing.Close(sub)
		case <-time.After(patient):
			t.Fatal("a revoked client goes on")
		}
		m.Publish(t, "room/1", fmt.Sprint(i)) // which waits for it
		sub = begin()
		select {
		case msg := <-got:
			if msg != fmt.Sprint(i) {
				t.Fatalf("got %s, want %d", msg, i)
			}
		case <-time.After(patient):
			t.Fatalf("round %d: nothing came", i)
		}
	}
	_ = closing.Close(sub)
}

// Wrong requests are refused, with what is wrong with them.
func TestRevocationsAreChecked(t *testing.T) {
	t.Parallel()
	m, _ := guarded(t, harness.Options{})
	api := access(t, m)
	at := func(d time.Duration) uint64 { return uint64(time.Now().Add(d).UnixMicro()) }
	for what, req := range map[string]*pushmeshv1.AccessServiceRevokeRequest{
		"a user, or an issuer":  {},
		"not both":              {User: "ann", Issuer: "test", TokenId: "1"},
		"its jti, both":         {Issuer: "test"},
		"must not contain /":    {User: "ann/x"},
		"until is in the past":  {User: "ann", Until: at(-time.Minute)},
		"400 days":              {User: "ann", Until: at(401 * 24 * time.Hour)},
		"256 bytes at most":     {User: "ann", Reason: strings.Repeat("x", 257)},
		"1024 bytes at most":    {Issuer: "test", TokenId: strings.Repeat("x", 1025)},
		"control characters":    {User: "ann", Reason: "a\nb"},
		"reason must be UTF-8 ": {User: "ann", Reason: "a\x07"},
	} {
		_, err := api.Revoke(t.Context(), req)
		if err == nil || !strings.Contains(err.Error(), what) && !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("%v: %v, want %q", req, err, what)
		}
	}
	if _, err := api.Restore(t.Context(), &pushmeshv1.AccessServiceRestoreRequest{User: "nobody"}); err == nil || !strings.Contains(err.Error(), "NOT_FOUND") && !strings.Contains(err.Error(), "not found") {
		t.Errorf("restore of what is not revoked: %v", err)
	}
	for _, req := range []*pushmeshv1.AccessServiceListRequest{{Limit: 1001}, {PageToken: "x"}} {
		if _, err := api.List(t.Context(), req); err == nil {
			t.Errorf("%v is answered", req)
		}
	}
}
