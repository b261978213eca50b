package hook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller"
	"github.com/pushmesh/pushmesh/internal/identity/caller/callertest"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func open(t *testing.T, b *callertest.Backend, cfg Config) *Hook {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = b.URL
	}
	if cfg.Guard == nil {
		cfg.Guard = callertest.Guard(t)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	callertest.Ends(t, h.Stop)
	return h
}

const ann = `{"sub": "ann", "expires_in": 60, "pm_sub": ["room/+/chat"]}`

// Who is let in has what the answer says; the backend is told what the client says, and by a
// signature that it is asked by the mesh.
func TestWhoTheBackendKnows(t *testing.T) {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("twenty-four bytes of test"))
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	signs, err := outbound.OpenSecret(file, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := webhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	want := Question{Token: "cookie", Client: "phone", Session: "s", Address: "10.1.2.3", Edge: "e1", Cookie: "id=1; theme=dark"}
	b := callertest.New(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var q Question
		if err := json.Unmarshal(body, &q); err != nil || q != want {
			t.Errorf("asked %s: %v", body, err)
		}
		if err := checks.Verify(body, r.Header); err != nil {
			t.Errorf("the signature: %v", err)
		}
		_, _ = io.WriteString(w, ann)
	})
	h := open(t, b, Config{Secret: signs})
	who, err := h.Ask(t.Context(), &want)
	if err != nil {
		t.Fatal(err)
	}
	if _, granted := who.Allows(identity.Subscribe, "room/1/chat"); !granted || who.User != "ann" {
		t.Errorf("got %+v", who)
	}
	if _, granted := who.Allows(identity.Subscribe, "room/#"); granted {
		t.Error("more is granted than the answer says")
	}
	if left := time.Until(who.Expires); left > time.Minute || left < 30*time.Second {
		t.Errorf("it ends in %s", left)
	}
	if h.Known(&want) != nil {
		t.Error("an answer that may not be used again is")
	}
}

// Whatever a backend says, or does not, lets nobody in but a whole and sound answer.
func TestNobodyComesInByAFault(t *testing.T) {
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		want   wirev1.Code
		says   string
	}{
		"401":              {callertest.Says(401, ""), wirev1.Code_CODE_UNAUTHENTICATED, "does not let the client in"},
		"403 with why":     {callertest.Says(403, `{"reason": "not paid\n"}`), wirev1.Code_CODE_UNAUTHENTICATED, ": not paid"},
		"403 with much":    {callertest.Says(403, `{"reason": "`+strings.Repeat("x", 300)+`"}`), wirev1.Code_CODE_UNAUTHENTICATED, "does not let the client in"},
		"500":              {callertest.Says(500, ann), wirev1.Code_CODE_UNAVAILABLE, ""},
		"404":              {callertest.Says(404, ann), wirev1.Code_CODE_UNAVAILABLE, ""},
		"204":              {callertest.Says(204, ""), wirev1.Code_CODE_UNAVAILABLE, ""},
		"a redirect":       {http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, wirev1.Code_CODE_UNAVAILABLE, ""},
		"garbage":          {callertest.Says(200, "let him in"), wirev1.Code_CODE_UNAVAILABLE, ""},
		"half":             {callertest.Says(200, ann[:len(ann)-1]), wirev1.Code_CODE_UNAVAILABLE, ""},
		"two objects":      {callertest.Says(200, ann+ann), wirev1.Code_CODE_UNAVAILABLE, ""},
		"10 MiB":           {callertest.Says(200, strings.Repeat(" ", 10<<20)+ann), wirev1.Code_CODE_UNAVAILABLE, ""},
		"no user":          {callertest.Says(200, `{"expires_in": 60}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"a wrong user":     {callertest.Says(200, `{"sub": "a/b", "expires_in": 60}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"no end":           {callertest.Says(200, `{"sub": "ann"}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"two ends":         {callertest.Says(200, `{"sub": "ann", "exp": 9999999999, "expires_in": 1}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"over":             {callertest.Says(200, `{"sub": "ann", "exp": 1}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"misspelled":       {callertest.Says(200, `{"sub": "ann", "expires_in": 60, "pm_subs": []}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"a bad filter":     {callertest.Says(200, `{"sub": "ann", "expires_in": 60, "pm_sub": "a/#/b"}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"a negative cache": {callertest.Says(200, `{"sub": "ann", "expires_in": 60, "cache_seconds": -1}`), wirev1.Code_CODE_UNAVAILABLE, ""},
		"hangs up":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, wirev1.Code_CODE_UNAVAILABLE, ""},
	} {
		t.Run(what, func(t *testing.T) {
			h := open(t, callertest.New(t, c.answer), Config{})
			who, err := h.Ask(t.Context(), &Question{Token: "x"})
			e := code.From(err)
			if who != nil || e == nil || e.Code != c.want || !strings.Contains(e.Message, c.says) || strings.ContainsAny(e.Message, "\n") {
				t.Fatalf("got %v, %v", who, err)
			}
			if (e.RetryAfter > 0) != (c.want == wirev1.Code_CODE_UNAVAILABLE) {
				t.Errorf("to come back in %s", e.RetryAfter)
			}
		})
	}
	private := outbound.New(outbound.Config{Metric: "refused"})
	b := callertest.New(t, callertest.Says(200, ann))
	if who, err := open(t, b, Config{Guard: private}).Ask(t.Context(), &Question{}); who != nil || code.Of(err) != wirev1.Code_CODE_UNAVAILABLE || b.Asked.Load() != 0 {
		t.Errorf("an address that is not listed: %v, %v", who, err)
	}
	for _, url := range []string{"", "file:///etc/passwd", "http://u:p@host/", "::"} {
		if _, err := New(Config{URL: url, Guard: private}); err == nil {
			t.Errorf("%q is taken", url)
		}
	}
}

// A backend says itself when to come back.
func TestRetryAfter(t *testing.T) {
	for said, want := range map[string]time.Duration{"7": 7 * time.Second, "100000": caller.MostRetry, "soon": time.Second} {
		h := open(t, callertest.New(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", said)
			w.WriteHeader(http.StatusTooManyRequests)
		}), Config{})
		if _, err := h.Ask(t.Context(), &Question{}); code.From(err).RetryAfter != want {
			t.Errorf("%q: %v", said, err)
		}
	}
}

// An answer is used again for as long as it says, for the same question alone.
func TestAnswersAreUsedAgain(t *testing.T) {
	b := callertest.New(t, callertest.Says(200, `{"sub": "ann", "expires_in": 60, "cache_seconds": 30}`))
	reg := prometheus.NewRegistry()
	h := open(t, b, Config{CacheBytes: 10 * (1 << 10), Registry: reg, Tier: "edge"})
	q := &Question{Token: "x", Client: "phone"}
	if h.Known(q) != nil {
		t.Fatal("known before it was asked")
	}
	who, err := h.Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Known(&Question{Token: "x", Client: "phone"}); got != who {
		t.Errorf("got %v", got)
	}
	for _, other := range []*Question{{Token: "y", Client: "phone"}, {Token: "x", Client: "tablet"}, {Token: "x", Client: "phone", Address: "10.0.0.1"}, {Token: "xp", Client: "hone"}, {Token: "x", Session: "phone"}, {Token: "x", Client: "phone", Cookie: "id=1"}} {
		if h.Known(other) != nil {
			t.Errorf("%v is known", other)
		}
	}
	h.cache.all.Put(q.hash(), kept{who: who, until: time.Now()}, 1)
	if h.Known(q) != nil {
		t.Error("it is used for too long")
	}
	for i := range 50 {
		if _, err := h.Ask(t.Context(), &Question{Token: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.cache.all.Len(); h.cache.all.Cost() > h.cache.all.Most() || n == 0 || n > 10 {
		t.Errorf("%d bytes for %d answers", h.cache.all.Cost(), n)
	}
	const counted = `
# HELP pushmesh_edge_connect_hook_asked_total Clients that the backend of --connect-hook was asked about, by what came of it: ok, cached (an answer from before), or the code of the refusal.
# TYPE pushmesh_edge_connect_hook_asked_total counter
pushmesh_edge_connect_hook_asked_total{result="cached"} 1
pushmesh_edge_connect_hook_asked_total{result="ok"} 51
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(counted), "pushmesh_edge_connect_hook_asked_total"); err != nil {
		t.Error(err)
	}
}

// A backend that is slow, or down, is waited for in bounds, left alone for a while, and asked
// again.
func TestABackendThatFails(t *testing.T) {
	var works atomic.Bool
	hang, arrived := make(chan struct{}), make(chan struct{}, 1)
	b := callertest.New(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case works.Load():
			callertest.Says(200, ann)(w, r)
		case r.URL.Path == "/hangs":
			arrived <- struct{}{}
			<-hang
		default:
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	defer close(hang)
	slow := open(t, b, Config{URL: b.URL + "/hangs", Timeout: 2 * time.Second, UnderWay: 1})
	first := make(chan error, 1)
	go func() {
		_, err := slow.Ask(t.Context(), &Question{})
		first <- err
	}()
	<-arrived
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := slow.Ask(short, &Question{}); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("a second one meanwhile: %v", err)
	}
	if err := <-first; code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("no answer in time: %v", err)
	}

	h := open(t, b, Config{})
	before := b.Asked.Load()
	for range 2 * caller.FailuresToOpen {
		if _, err := h.Ask(t.Context(), &Question{}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatal(err)
		}
	}
	if n := b.Asked.Load() - before; n != caller.FailuresToOpen || h.Check() == nil {
		t.Errorf("asked %d times, %v", n, h.Check())
	}
	works.Store(true)
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := h.Ask(t.Context(), &Question{}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("never asked again")
		}
		<-time.NewTimer(50 * time.Millisecond).C
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

// What clients can have a backend answer does not stop the questions of others.
func TestClientsCanNotOpenTheBreaker(t *testing.T) {
	var answer atomic.Value
	b := callertest.New(t, func(w http.ResponseWriter, r *http.Request) { answer.Load().(http.HandlerFunc)(w, r) })
	h := open(t, b, Config{})
	for _, a := range []http.HandlerFunc{callertest.Says(400, ""), callertest.Says(422, ""), callertest.Says(200, `{"sub": "a/b"}`), callertest.Says(403, "")} {
		answer.Store(a)
		for range 2 * caller.FailuresToOpen {
			if _, err := h.Ask(t.Context(), &Question{}); err == nil {
				t.Fatal("let in")
			}
		}
	}
	answer.Store(callertest.Says(200, ann))
	if _, err := h.Ask(t.Context(), &Question{}); err != nil {
		t.Error(err)
	}
}
