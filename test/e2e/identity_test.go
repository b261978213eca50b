package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
	"github.com/pushmesh/pushmesh/internal/identity/hook"
	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/backend"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// guarded is a mesh whose edges let in those with a token of the issuer.
func guarded(t *testing.T, o harness.Options) (*harness.Mesh, *tokentest.Issuer) {
	t.Helper()
	is := tokentest.New(t)
	file := is.File(t)
	o.Change = func(s *inprocess.Settings) {
		for i := range s.Edges {
			s.Edges[i].Open, s.Edges[i].Issuers, s.Edges[i].OutboundAllow = false, file, []string{"127.0.0.1"}
		}
	}
	return harness.Start(t, o), is
}

// comeIn says Hello, and is welcomed, or refused. A refusal for a while is no answer yet.
func comeIn(t *testing.T, m *harness.Mesh, hello *wirev1.Hello) (*wireclient.Client, wirev1.Code) {
	t.Helper()
	return comeInAt(t, m.EdgeAddr(), hello)
}

// comeInAt is comeIn at an edge.
func comeInAt(t *testing.T, addr string, hello *wirev1.Hello) (*wireclient.Client, wirev1.Code) {
	t.Helper()
	hello.Version = 1
	for deadline := time.Now().Add(patient); ; {
		c := wireclient.Dial(t, addr)
		c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, hello)
		ft, body, err := c.Next(patient)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wireclient.Frame(ft, body)
		if err != nil {
			t.Fatal(err)
		}
		no, refused := got.(*wirev1.Error)
		if !refused {
			return c, wirev1.Code_CODE_OK
		}
		c.Close()
		if no.GetRetryAfterMs() == 0 || time.Now().After(deadline) {
			return nil, no.GetCode()
		}
		timer := time.NewTimer(time.Duration(no.GetRetryAfterMs()) * time.Millisecond)
		<-timer.C
	}
}

// Over real sockets, with keys fetched by HTTP: who shows what gets in or not, and what is whose.
func TestClientsProveWhoTheyAre(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{})
	putNamespace(t, m, "room", &pushmeshv1.Policy{Durable: true, ClientPublish: true})
	other := tokentest.New(t)
	past := time.Now().Add(-time.Hour).Unix()
	for what, c := range map[string]struct {
		token string
		want  wirev1.Code
	}{
		"none":             {"", wirev1.Code_CODE_UNAUTHENTICATED},
		"garbage":          {"garbage", wirev1.Code_CODE_UNAUTHENTICATED},
		"good":             {is.Token("ann", nil), wirev1.Code_CODE_OK},
		"expired":          {is.Token("ann", map[string]any{"exp": past}), wirev1.Code_CODE_TOKEN_EXPIRED},
		"another audience": {is.Token("ann", map[string]any{"aud": "billing"}), wirev1.Code_CODE_UNAUTHENTICATED},
		"another issuer":   {other.Token("ann", nil), wirev1.Code_CODE_UNAUTHENTICATED},
		"forged":           {other.Token("ann", map[string]any{"iss": is.URL}), wirev1.Code_CODE_UNAUTHENTICATED},
		"another client":   {is.Token("ann", map[string]any{"pm_client": "{user}-*"}), wirev1.Code_CODE_FORBIDDEN},
		"no user":          {is.Token("", nil), wirev1.Code_CODE_UNAUTHENTICATED},
		"two levels":       {is.Token("ann/x", nil), wirev1.Code_CODE_UNAUTHENTICATED},
		"9 KiB":            {strings.Repeat("x", 9<<10), wirev1.Code_CODE_UNAUTHENTICATED},
		"13 KiB":           {strings.Repeat("x", 13<<10), wirev1.Code_CODE_FRAME_TOO_LARGE},
	} {
		if got, is := comeIn(t, m, &wirev1.Hello{Token: c.token, ClientId: "phone"}); is != c.want {
			t.Errorf("%s: %v, want %v", what, is, c.want)
		} else if got != nil {
			got.Close()
		}
	}

	grants := map[string]any{"pm_sub": []string{"room/+/chat"}, "pm_pub": []string{"room/1/chat"}}
	ann, _ := comeIn(t, m, &wirev1.Hello{Token: is.Token("ann", grants), ClientId: "phone", Session: "s"})
	ann.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1/chat"})
	ann.Subscribe(&wirev1.Subscribe{Id: 2, Filter: "user/ann/#"})
	for i, filter := range []string{"room/#", "user/bob/inbox", "user/+/inbox", "#", "$dead/#"} {
		ann.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(10 + i), Filter: filter})
		if no := ann.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN || !strings.Contains(no.GetMessage(), "default-deny") {
			t.Errorf("%s: %v", filter, no)
		}
	}
	ann.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 30, Topic: "room/2/chat", Payload: []byte("no")})
	if no := ann.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN || no.GetRef() != 30 {
		t.Errorf("a publish that is not granted: %v", no)
	}
	worker, _ := backend.Open(t, m.Router(t), &wirev1.Hello{ClientId: "worker"}, false)
	worker.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1/chat"})
	ann.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "room/1/chat", Payload: []byte("hi")})
	if msg := worker.Message(); msg.GetFrom() != "ann" || string(msg.GetPayload()) != "hi" {
		t.Errorf("a backend got %v", msg)
	}
	m.Publish(t, "user/ann/inbox", "for ann")
	m.Publish(t, "user/bob/inbox", "for bob")
	m.Publish(t, "room/1/chat", "for all")
	want := map[string]bool{"hi": true, "for ann": true, "for all": true}
	for len(want) > 0 {
		msg := ann.Message()
		if !want[string(msg.GetPayload())] {
			t.Fatalf("ann got %v, and is owed %v", msg, want)
		}
		delete(want, string(msg.GetPayload()))
	}
	// Bob says that he is ann's phone, and has what is his alone.
	bob, _ := comeIn(t, m, &wirev1.Hello{Token: is.Token("bob", grants), ClientId: "phone", Session: "s"})
	bob.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "user/ann/#"})
	if no := bob.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("bob has what is ann's: %v", no)
	}
	m.Publish(t, "room/1/chat", "ann is here still")
	if msg := ann.Message(); string(msg.GetPayload()) != "ann is here still" {
		t.Errorf("ann got %v", msg)
	}
}

// An OpenID Connect provider changes its keys under 10,000 connections: they stay, tokens of the
// new key are taken at once, by those that are there as well, and those of a key that is gone are
// not.
func TestKeysAreRotatedUnderConnections(t *testing.T) {
	t.Parallel()
	const connections, atOnce = 10_000, 500
	is := tokentest.New(t)
	m := procmesh.Start(t, procmesh.Options{Edges: 2, EdgeArgs: []string{"--issuers", is.File(t), "--outbound-allow", "127.0.0.1"}})
	grants := map[string]any{"pm_sub": "room/#"}
	all := make([]*wireclient.Client, connections)
	user := func(i int) string { // every second one is a user of its own
		if i%2 == 0 {
			return "ann"
		}
		return fmt.Sprint("user-", i)
	}
	anns := is.Token("ann", grants)
	for from := 0; from < connections; from += atOnce {
		for i := from; i < from+atOnce; i++ {
			token := anns
			if i%2 == 1 {
				token = is.Token(user(i), grants)
			}
			all[i] = wireclient.Dial(t, m.EdgeAddrs[i/2%2])
			all[i].Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Token: token, HeartbeatMs: 600_000})
		}
		for _, c := range all[from : from+atOnce] {
			wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
			c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1"})
		}
		for _, c := range all[from : from+atOnce] {
			wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{})
		}
	}
	old := is.Token("ann", grants)
	is.Rotate()
	fetched := is.Fetches()
	for _, addr := range m.EdgeAddrs {
		c, code := comeInAt(t, addr, &wirev1.Hello{Token: is.Token("ann", grants)})
		if code != wirev1.Code_CODE_OK {
			t.Fatalf("a token of the new key: %v", code)
		}
		c.Close()
	}
	const refreshed = 1000
	for i, c := range all[:refreshed] {
		c.Send(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: 2, Token: is.Token(user(i), grants)})
	}
	for _, c := range all[:refreshed] {
		wireclient.Expect(c, wirev1.FrameType_FRAME_TYPE_REFRESHED, &wirev1.Refreshed{})
	}
	if n := is.Fetches() - fetched; n > 4 {
		t.Errorf("the keys were fetched %d times by two edges", n)
	}
	// a key that nobody has heard of has them fetched, and then the old one is gone
	is.Rotate()
	is.Forget()
	for _, addr := range m.EdgeAddrs {
		c, code := comeInAt(t, addr, &wirev1.Hello{Token: is.Token("ann", grants)})
		if code != wirev1.Code_CODE_OK {
			t.Fatalf("a token of the third key: %v", code)
		}
		c.Close()
		if _, code := comeInAt(t, addr, &wirev1.Hello{Token: old}); code != wirev1.Code_CODE_UNAUTHENTICATED {
			t.Errorf("a token of a key that is gone: %v", code)
		}
	}
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close(producer) }()
	if _, err := producer.Publish(t.Context(), pushmesh.Message{Topic: "room/1", Payload: []byte("still here")}); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		if msg := c.Message(); string(msg.GetPayload()) != "still here" {
			t.Fatalf("connection %d got %v", i, msg)
		}
	}
}

// The client asks for a new token where the edge closes it because the old one ends, and goes on
// with the same session: nothing is lost.
func TestASubscriberWithTokens(t *testing.T) {
	t.Parallel()
	m, is := guarded(t, harness.Options{})
	putNamespace(t, m, "jobs", &pushmeshv1.Policy{Durable: true})
	var tokens atomic.Int64
	got := make(chan string, 100)
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, ClientID: "phone", Session: "s", Token: func(context.Context) (string, error) {
		// the first ones are over soon: with 30 s of leeway, and up to a tenth of it earlier
		life := int64(-27)
		if tokens.Add(1) > 2 {
			life = 3600
		}
		return is.Token("ann", map[string]any{"exp": time.Now().Unix() + life, "pm_sub": "jobs/#", "jti": fmt.Sprint(tokens.Load())}), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close(sub) }()
	if _, err := sub.Subscribe(t.Context(), "jobs/a", func(_ context.Context, d *pushmesh.Delivery) error {
		got <- string(d.Payload)
		return nil
	}, pushmesh.WithAck()); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Subscribe(t.Context(), "other/a", func(context.Context, *pushmesh.Delivery) error { return nil }); pushmesh.CodeOf(err) != pushmesh.CodeForbidden {
		t.Errorf("what is not granted: %v", err)
	}
	for i, deadline := 0, time.Now().Add(patient); tokens.Load() < 3; i++ {
		m.Publish(t, "jobs/a", fmt.Sprint(i))
		if msg := <-got; msg != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d", msg, i)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d tokens were asked for", tokens.Load())
		}
	}
	refused, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: m.EdgeAddrs, Token: func(context.Context) (string, error) { return "forged", nil }})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-refused.Done():
		if pushmesh.CodeOf(refused.Err()) != pushmesh.CodeUnauthenticated {
			t.Errorf("a forged token ended with %v", refused.Err())
		}
	case <-time.After(patient):
		t.Error("a forged token is shown again and again")
	}
	if err := closing.Close(refused); err != nil && !errors.Is(err, context.Canceled) && pushmesh.CodeOf(err) != pushmesh.CodeUnauthenticated {
		t.Error(err)
	}
}

// A backend is asked who clients are that have no token of an issuer: what it says is what they
// may, until it says so no longer; while it is away nobody comes in, and who is in stays.
func TestABackendSaysWhoClientsAre(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	asked := make(chan hook.Question, 100)
	backendOf := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q hook.Question
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		asked <- q
		user, known := strings.CutPrefix(q.Token, "session-of-")
		switch {
		case away.Load():
			w.WriteHeader(http.StatusBadGateway)
		case !known:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason": "log in first"}`)
		default:
			_, _ = fmt.Fprintf(w, `{"sub": %q, "expires_in": 3600, "pm_sub": ["room/+/chat"], "pm_client": "phone*"}`, user)
		}
	}))
	t.Cleanup(backendOf.Close)
	is := tokentest.New(t)
	file := is.File(t)
	m := harness.Start(t, harness.Options{Change: func(s *inprocess.Settings) {
		for i := range s.Edges {
			e := &s.Edges[i]
			e.Open, e.ConnectHook, e.Issuers, e.OutboundAllow = false, backendOf.URL, file, []string{"127.0.0.1"}
		}
	}})
	for _, c := range []struct {
		hello *wirev1.Hello
		want  wirev1.Code
		asks  bool
	}{
		{&wirev1.Hello{Token: "session-of-ann", ClientId: "phone", Session: "s"}, wirev1.Code_CODE_OK, true},
		{&wirev1.Hello{Token: "session-of-ann", ClientId: "tablet"}, wirev1.Code_CODE_FORBIDDEN, true},
		{&wirev1.Hello{Token: "guess", ClientId: "phone"}, wirev1.Code_CODE_UNAUTHENTICATED, true},
		{&wirev1.Hello{ClientId: "phone"}, wirev1.Code_CODE_UNAUTHENTICATED, true},
		{&wirev1.Hello{Token: is.Token("bob", nil)}, wirev1.Code_CODE_OK, false},
		{&wirev1.Hello{Token: "a.b.c"}, wirev1.Code_CODE_UNAUTHENTICATED, false},
	} {
		hello := proto.CloneOf(c.hello)
		got, code := comeIn(t, m, hello)
		if code != c.want || c.asks != (len(asked) > 0) {
			t.Errorf("%v: %v, %d questions", hello, code, len(asked))
		}
		for len(asked) > 0 {
			if q := <-asked; q.Token != c.hello.GetToken() || q.Client != c.hello.GetClientId() || q.Session != c.hello.GetSession() || q.Edge == "" {
				t.Errorf("%v: asked %v", hello, q)
			}
		}
		if got != nil {
			got.Close()
		}
	}
	ann, _ := comeIn(t, m, &wirev1.Hello{Token: "session-of-ann", ClientId: "phone"})
	ann.Subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1/chat"})
	ann.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "room/#"})
	if no := ann.Error(); no.GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("more than the backend says: %v", no)
	}
	away.Store(true)
	c := wireclient.Dial(t, m.EdgeAddr())
	c.Send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, Token: "session-of-ann", ClientId: "phone-2"})
	if no := c.Error(); no.GetCode() != wirev1.Code_CODE_UNAVAILABLE || no.GetRetryAfterMs() == 0 {
		t.Errorf("while the backend is away: %v", no)
	}
	m.Publish(t, "room/1/chat", "still here")
	if msg := ann.Message(); string(msg.GetPayload()) != "still here" {
		t.Errorf("ann got %v", msg)
	}
	away.Store(false)
	if _, code := comeIn(t, m, &wirev1.Hello{Token: "session-of-ann", ClientId: "phone-2"}); code != wirev1.Code_CODE_OK {
		t.Errorf("once it is back: %v", code)
	}
}
