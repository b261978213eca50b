package token

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// lines is a log that a test reads line by line.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// until waits for a text in the log and returns the whole.
func (l *lines) until(t *testing.T, text string) string {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		all := l.String()
		if strings.Contains(all, text) {
			return all
		}
		select {
		case <-l.more:
		case <-timeout:
			t.Fatalf("the log has no %q: %s", text, all)
		}
	}
}

func guard(t *testing.T, list ...string) *outbound.Guard {
	t.Helper()
	allow, err := outbound.ParseAllow(list)
	if err != nil {
		t.Fatal(err)
	}
	return outbound.New(outbound.Config{Metric: "pushmesh_edge_outbound_refused_total", Allow: allow, Registry: prometheus.NewRegistry()})
}

// start runs a Verifier of one issuer whose keys are at a URL.
func start(t *testing.T, at string, o Options) *Verifier {
	t.Helper()
	issuers, err := parseIssuers(jsonOf(fields{"issuers": []fields{{
		"name": "id", "url": "https://id.example", "audiences": []string{"mesh"}, "jwks_url": at, "allow_insecure": true,
	}}}))
	if err != nil {
		t.Fatal(err)
	}
	v := New(issuers, o)
	if err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return v
}

// Keys are fetched through the guard: an issuer on the host itself is not called unless it is
// listed, and the log says what to list; a redirect is not followed, whoever it is to.
func TestKeysAreFetchedThroughTheGuard(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	padding := strings.Repeat(" ", 200<<10) // more than outbound.MostAnswer, within MaxKeySet
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path)
		mu.Unlock()
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/keys", http.StatusFound)
			return
		}
		_ = json.NewEncoder(w).Encode(fields{"keys": []fields{jwkOf(ecKey.Public(), "e", nil)}})
		_, _ = w.Write([]byte(padding))
	}))
	t.Cleanup(s.Close)
	listed := strings.TrimPrefix(s.URL, "http://")
	token := sign("ES256", ecKey, header("ES256", "e", nil), good(nil))

	log := newLines()
	v := start(t, s.URL+"/keys", Options{Guard: guard(t), Log: log.logger()})
	for _, says := range []string{listed + " is not called", "address of this host (loopback)", "list 127.0.0.1 in --outbound-allow", "issuer=id"} {
		log.until(t, says)
	}
	wants(t, v, "loopback", token, unavailable, "can't be had")
	mu.Lock()
	if len(asked) != 0 {
		t.Errorf("it was asked for %v", asked)
	}
	mu.Unlock()

	wants(t, start(t, s.URL+"/keys", Options{Guard: guard(t, listed)}), "listed", token, wirev1.Code_CODE_OK, "")

	log = newLines()
	v = start(t, s.URL+"/away", Options{Guard: guard(t, listed), Log: log.logger()})
	log.until(t, "redirects are not followed")
	wants(t, v, "redirect", token, unavailable, "can't be had")
	mu.Lock()
	if got := strings.Join(asked, " "); got != "/keys /away" {
		t.Errorf("it was asked for %s", got)
	}
	mu.Unlock()
}

// Whoever stops a Verifier that never began, as after a fault of another part, has no more to do.
func TestStopWithoutStart(t *testing.T) {
	issuers, err := parseIssuers([]byte(issuersFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := New(issuers, Options{Guard: guard(t)}).Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
