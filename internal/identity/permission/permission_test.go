package permission

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/caller"
	"github.com/pushmesh/pushmesh/internal/identity/caller/callertest"
	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func open(t *testing.T, b *callertest.Backend, cfg Config) *Hook {
	t.Helper()
	cfg.URL, cfg.Guard = b.URL+"/access/v1/evaluation", callertest.Guard(t)
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	callertest.Ends(t, h.Stop)
	return h
}

// Questions are those of AuthZEN, in which a filter with wildcards is no topic.
func TestWhatIsAsked(t *testing.T) {
	var got string
	p := callertest.New(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + string(body)
		if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Request-ID") == "" {
			t.Errorf("headers %v", r.Header)
		}
		callertest.Says(200, `{"decision": true}`)(w, r)
	})
	h := open(t, p, Config{Edge: "e1"})
	for want, q := range map[string]identity.Question{
		`{"subject":{"type":"user","id":"ann","properties":{"client_id":"phone","issuer":"corp"}},"action":{"name":"subscribe"},"resource":{"type":"topic","id":"room/1/chat"},"context":{"address":"10.1.2.3","edge":"e1"}}`: {User: "ann", Client: "phone", Issuer: "corp", Address: "10.1.2.3", Filter: "room/1/chat"},
		`{"subject":{"type":"user","id":"ann"},"action":{"name":"subscribe"},"resource":{"type":"filter","id":"room/+/chat"},"context":{"edge":"e1"}}`:                                                                        {User: "ann", Filter: "room/+/chat"},
		`{"subject":{"type":"user","id":"ann"},"action":{"name":"group"},"resource":{"type":"topic","id":"jobs","properties":{"group":"workers"}},"context":{"edge":"e1"}}`:                                                   {User: "ann", Verb: identity.Group, Filter: "jobs", Group: "workers"},
		`{"subject":{"type":"user","id":"ann"},"action":{"name":"publish"},"resource":{"type":"topic","id":"room/1"},"context":{"edge":"e1"}}`:                                                                                {User: "ann", Verb: identity.Publish, Filter: "room/1"},
		`{"subject":{"type":"user","id":"ann"},"action":{"name":"claim"},"resource":{"type":"resource","id":"seat/1"},"context":{"edge":"e1"}}`:                                                                               {User: "ann", Verb: identity.Claim, Filter: "seat/1"},
	} {
		if _, err := h.Ask(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
		if got != "POST /access/v1/evaluation "+want {
			t.Errorf("asked\n%s, want\n%s", got, want)
		}
	}
}

// Whatever a backend says, or does not, grants nothing but a whole and sound yes; only a no is one.
func TestNothingIsGrantedByAFault(t *testing.T) {
	for what, c := range map[string]struct {
		answer  http.HandlerFunc
		allowed bool
		why     wirev1.Code // OK: an answer
		reason  string
	}{
		"yes":                {callertest.Says(200, `{"decision": true}`), true, 0, ""},
		"yes and more":       {callertest.Says(200, `{"decision": true, "context": {"id": "0", "reason_admin": {"en": "x"}, "reason": {"en": "x"}}, "more": [1]}`), true, 0, ""},
		"yes, no context":    {callertest.Says(200, `{"decision": true, "context": null}`), true, 0, ""},
		"no":                 {callertest.Says(200, `{"decision": false}`), false, 0, ""},
		"no and why":         {callertest.Says(200, `{"decision": false, "context": {"reason": "not paid\n"}}`), false, 0, ": not paid"},
		"no and much":        {callertest.Says(200, `{"decision": false, "context": {"reason": "`+strings.Repeat("x", 300)+`"}}`), false, 0, ""},
		"no decision":        {callertest.Says(200, `{}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a text":             {callertest.Says(200, `{"decision": "true"}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a number":           {callertest.Says(200, `{"decision": 1}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"null":               {callertest.Says(200, `{"decision": null}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"in capitals":        {callertest.Says(200, `{"Decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"two decisions":      {callertest.Says(200, `{"decision": false, "decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"half":               {callertest.Says(200, `{"decision": true`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"two answers":        {callertest.Says(200, `{"decision": true}{"decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"garbage":            {callertest.Says(200, `yes`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a list":             {callertest.Says(200, `[{"decision": true}]`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a context as text":  {callertest.Says(200, `{"decision": true, "context": "x"}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a cache of a day":   {callertest.Says(200, `{"decision": true, "context": {"cache_seconds": 86400}}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a cache below 0":    {callertest.Says(200, `{"decision": true, "context": {"cache_seconds": -1}}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a cache as text":    {callertest.Says(200, `{"decision": true, "context": {"cache_seconds": "60"}}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"10 MiB":             {callertest.Says(200, strings.Repeat(" ", 10<<20)+`{"decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"nested":             {callertest.Says(200, `{"decision": true, "context": {"x": `+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"401, about us":      {callertest.Says(401, `{"decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"403, about us":      {callertest.Says(403, `{"decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"404":                {callertest.Says(404, `{"decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"500":                {callertest.Says(500, `{"decision": true}`), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"204":                {callertest.Says(204, ``), false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a redirect":         {http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a hand that closes": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, wirev1.Code_CODE_UNAVAILABLE, ""},
		"a hand that hangs":  {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, false, wirev1.Code_CODE_UNAVAILABLE, ""},
	} {
		timeout := caller.DefaultTimeout
		if strings.HasSuffix(what, "hangs") {
			timeout = 50 * time.Millisecond
		}
		h := open(t, callertest.New(t, c.answer), Config{Timeout: timeout})
		q := &identity.Question{User: "ann", Filter: "room/1"}
		got, err := h.Ask(t.Context(), q)
		var why *code.Error
		if err != nil && (!errors.As(err, &why) || why.RetryAfter <= 0) {
			t.Errorf("%s: %v says not when to come back", what, err)
		}
		if got.Allowed != c.allowed || got.Reason != c.reason || (why == nil) != (c.why == 0) || why != nil && why.Code != c.why {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if _, known := h.Known(q); known != (err == nil) {
			t.Errorf("%s: an answer is known: %v", what, known)
		}
	}
}

// An answer is used again for as long as it says, within bounds, and for the same question alone.
func TestAnswersAreUsedAgain(t *testing.T) {
	for said, want := range map[string]time.Duration{
		`{"decision": true}`: DefaultYes,
		`{"decision": true, "context": {"cache_seconds": 600}}`: 10 * time.Minute,
		`{"decision": true, "context": {"cache_seconds": 0}}`:   Least,
		`{"decision": false}`: MostNo,
		`{"decision": false, "context": {"cache_seconds": 2}}`:      2 * time.Second,
		`{"decision": false, "context": {"cache_seconds": 3600}}`:   MostNo,
		`{"decision": true, "context": {"cache_seconds": 3600}}`:    Most,
		`{"decision": false, "context": {"cache_seconds": 0}}`:      Least,
		`{"decision": true, "context": {"other": "cache_seconds"}}`: DefaultYes,
	} {
		p := callertest.New(t, callertest.Says(200, said))
		reg := prometheus.NewRegistry()
		h := open(t, p, Config{CacheBytes: 10 * entryBytes, Registry: reg, Tier: "edge"})
		q := identity.Question{User: "ann", Client: "phone", Filter: "room/1"}
		if _, known := h.Known(&q); known {
			t.Fatal("known before it was asked")
		}
		got, err := h.Ask(t.Context(), &q)
		if err != nil || got.Left > want || got.Left < want-500*time.Millisecond {
			t.Errorf("%s: used for %s, %v", said, got.Left, err)
		}
		same := q
		if again, known := h.Known(&same); !known || again.Allowed != got.Allowed || again.Left > got.Left {
			t.Errorf("%s: %+v, %v", said, again, known)
		}
		of := hashOf(&q)
		if _, known := h.known(of, time.Now().Add(want)); known {
			t.Errorf("%s is used for too long", said)
		}
		if n, err := testutil.GatherAndCount(reg, "pushmesh_edge_permission_hook_asked_total"); err != nil || n != 2 {
			// ok and cached
			t.Errorf("%d results were counted: %v", n, err)
		}
	}
	h := open(t, callertest.New(t, callertest.Says(200, `{"decision": true}`)), Config{CacheBytes: 10 * entryBytes})
	q := identity.Question{User: "ann", Client: "phone", Filter: "room/1"}
	if _, err := h.Ask(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	for _, other := range []identity.Question{
		{User: "bob", Client: "phone", Filter: "room/1"},
		{User: "ann", Client: "tablet", Filter: "room/1"},
		{User: "annp", Client: "hone", Filter: "room/1"},
		{User: "ann", Client: "phone", Filter: "room/2"},
		{User: "ann", Client: "phone", Filter: "room/1", Verb: identity.Publish},
		{User: "ann", Client: "phone", Filter: "room/1", Group: "g"},
		{User: "ann", Client: "phone", Filter: "room/1", Address: "10.0.0.1"},
		{User: "ann", Client: "phone", Filter: "room/1", Issuer: "corp"},
	} {
		if _, known := h.Known(&other); known {
			t.Errorf("%+v is known", other)
		}
	}
	for i := range 50 {
		if _, err := h.Ask(t.Context(), &identity.Question{User: fmt.Sprint(i), Filter: "room/1"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.cache.Len(); n == 0 || n > 10 {
		t.Errorf("%d answers are kept in the memory of 10", n)
	}
}

// A backend that is down is left alone for a while; what comes of it is UNAVAILABLE at once.
func TestADeadBackendIsLeftAlone(t *testing.T) {
	p := callertest.New(t, callertest.Says(500, ""))
	h := open(t, p, Config{})
	for i := range 2 * caller.FailuresToOpen {
		if _, err := h.Ask(t.Context(), &identity.Question{User: "ann", Filter: fmt.Sprint(i)}); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
			t.Fatal(err)
		}
	}
	if n := p.Asked.Load(); n != caller.FailuresToOpen || h.Check() == nil || !strings.Contains(h.Check().Error(), "--permission-hook") {
		t.Errorf("it was asked %d times: %v", n, h.Check())
	}
}

// Whatever bytes come, an answer is a yes only where encoding/json, too, finds the one decision
// true.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{`{"decision": true}`, `{"decision": false, "context": {"cache_seconds": 60, "reason": "no"}}`, `{"decision":true,"context":{"cache_seconds":1e3}}`, `{"decision":tru`, `{}`, `{"decision":true,"context":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readAnswer(data)
		if err != nil {
			if s.allowed {
				t.Fatal("an answer with a fault is a yes")
			}
			return
		}
		var plain map[string]any
		if json.Unmarshal(data, &plain) != nil || s.allowed != (plain["decision"] == true) {
			t.Fatalf("%q: %+v", data, s)
		}
		if s.cache < Least || s.cache > Most || !s.allowed && s.cache > MostNo || len(s.reason) > 210 || s.allowed && s.reason != "" {
			t.Fatalf("%+v", s)
		}
	})
}
