package token

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fileOf has these entries.
func fileOf(entries ...string) string { return `{"issuers": [` + strings.Join(entries, ",") + `]}` }

const (
	entryID  = `{"name": "id", "url": "https://id.example", "jwks_url": "https://id.example/keys", "audiences": ["mesh"], "user_prefix": "a:"}`
	entryTwo = `{"name": "two", "url": "https://two.example", "jwks_url": "https://two.example/keys", "audiences": ["mesh"], "user_prefix": "b:"}`
	otherAud = `{"name": "id", "url": "https://id.example", "jwks_url": "https://id.example/keys", "audiences": ["other"], "user_prefix": "a:"}`
)

// counting fetches keys, and counts by host.
type counting struct {
	*web
	mu    sync.Mutex
	hosts map[string]int
}

// RoundTrip implements http.RoundTripper.
func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.hosts[r.URL.Host]++
	c.mu.Unlock()
	return c.web.RoundTrip(r)
}

func (c *counting) of(host string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[host]
}

// The issuers file is read again: a new issuer's tokens are taken, those of one that is gone are
// refused, also where they were found good before, and an issuer that stays keeps its keys. What
// can't be used changes nothing.
func TestTheIssuersFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &counting{web: &web{}, hosts: map[string]int{}}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		path := filepath.Join(t.TempDir(), "issuers.json")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(fileOf(entryID))
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		v, err := Open(path, Options{Client: &http.Client{Transport: w}, Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: reg, Tier: "edge"})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := v.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		change := func(text string) {
			t.Helper()
			write(text)
			<-time.After(2 * time.Second) // as it is promised
			synctest.Wait()
		}
		id := sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"exp": time.Now().Add(time.Hour).Unix()}))
		two := sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"iss": "https://two.example", "exp": time.Now().Add(time.Hour).Unix()}))
		synctest.Wait()
		wants(t, v, "first", id, isOK, "")
		wants(t, v, "a stranger", two, unauthenticated, "not an issuer that this mesh trusts")

		change(fileOf(entryID, entryTwo))
		wants(t, v, "who stays", id, isOK, "")
		wants(t, v, "who is new", two, isOK, "")
		if one, two := w.of("id.example"), w.of("two.example"); one != 1 || two != 1 {
			t.Errorf("fetches: %d and %d", one, two)
		}

		before := log.Len()
		for range 2 {
			change(`{"issuers": [`)
		}
		wants(t, v, "a broken file", two, isOK, "")
		if err := v.Check(); err == nil || !strings.Contains(err.Error(), "the old one stays: "+path) {
			t.Errorf("the check says %v", err)
		}
		if n := strings.Count(log.String()[before:], "can't be used"); n != 1 {
			t.Errorf("it is told %d times: %s", n, log.String())
		}

		change(fileOf(entryID))
		if err := v.Check(); err != nil {
			t.Error(err)
		}
		if v.Known(two) != nil {
			t.Error("what an issuer that is gone has signed is known")
		}
		wants(t, v, "who is gone", two, unauthenticated, "not an issuer that this mesh trusts")
		fetched := w.of("two.example")

		change(fileOf(otherAud))
		if v.Known(id) != nil {
			t.Error("a token is known that the rules of its issuer refuse now")
		}
		wants(t, v, "another audience", id, unauthenticated, "aud does not name this mesh")

		<-time.After(3 * DefaultRefresh)
		if w.of("two.example") != fetched {
			t.Error("keys of an issuer that is gone are fetched")
		}
		for result, want := range map[string]float64{"taken": 3, "failed": 1} {
			if got := reloads(t, reg, result); got != want {
				t.Errorf("%s: %v, want %v", result, got, want)
			}
		}
	})
}

func reloads(t *testing.T, reg *prometheus.Registry, result string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "pushmesh_edge_issuers_reloads_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric of %s", result)
	return 0
}

// An issuer whose rules change while it can't be reached keeps the keys that it has.
func TestAnIssuerThatChangesKeepsItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		path := filepath.Join(t.TempDir(), "issuers.json")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(fileOf(otherAud))
		v, err := Open(path, Options{Client: &http.Client{Transport: w}})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = v.Stop(context.Background()) }()
		synctest.Wait()
		w.set(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") })
		write(fileOf(entryID))
		<-time.After(1600 * time.Millisecond)
		id := sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"exp": time.Now().Add(time.Hour).Unix()}))
		synctest.Wait()
		if w.asked.Load() < 2 {
			t.Error("the keys of the changed issuer were not asked for")
		}
		wants(t, v, "it can't be reached", id, isOK, "")
	})
}
