package token

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		w := &web{}
		down := func(*http.Request) (*http.Response, error) { return nil, errors.New("down") }
		w.set(down)
		v := begin(t, w, issuersFile, Options{Registry: registry, Tier: "edge", Concurrency: 1})
		synctest.Wait()
		if n := testutil.CollectAndCount(registry, "pushmesh_edge_issuer_keys_age_seconds"); n != 0 {
			t.Errorf("keys that were never fetched have an age")
		}
		token := sign("ES256", ecKey, header("ES256", "e", nil), good(nil))
		wants(t, v, "without keys", token, unavailable, "")
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		<-time.After(DefaultCooldown)
		synctest.Wait()
		for range 3 {
			wants(t, v, "good", token, isOK, "")
		}
		wants(t, v, "bad", "a.b", unauthenticated, "")
		wants(t, v, "long", strings.Repeat("a", MaxToken+1), unauthenticated, "")
		old := good(fields{"exp": time.Now().Add(-time.Hour).Unix()})
		_, _ = v.Verify(t.Context(), sign("ES256", ecKey, header("ES256", "e", nil), old))
		<-time.After(7 * time.Second)
		v.room <- struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _, _ = v.Verify(ctx, token+"A"); close(done) }()
		synctest.Wait()
		// the second fetch was at 10 s, the age is 7 s
		want := `
# HELP pushmesh_edge_issuer_fetches_total Fetches of the keys of an issuer of tokens, by what came of it: ok or failed.
# TYPE pushmesh_edge_issuer_fetches_total counter
pushmesh_edge_issuer_fetches_total{issuer="id",result="failed"} 1
pushmesh_edge_issuer_fetches_total{issuer="id",result="ok"} 1
# HELP pushmesh_edge_issuer_keys_age_seconds Since the fetch began that gave the keys of an issuer of tokens; absent until one has.
# TYPE pushmesh_edge_issuer_keys_age_seconds gauge
pushmesh_edge_issuer_keys_age_seconds{issuer="id"} 7
# HELP pushmesh_edge_token_checks_waiting Checks of tokens that wait for their turn.
# TYPE pushmesh_edge_token_checks_waiting gauge
pushmesh_edge_token_checks_waiting 1
# HELP pushmesh_edge_tokens_verified_total Tokens that were shown, by what came of it: ok, cached (ok, and was verified before), or the code of the refusal.
# TYPE pushmesh_edge_tokens_verified_total counter
pushmesh_edge_tokens_verified_total{result="cached"} 2
pushmesh_edge_tokens_verified_total{result="ok"} 1
pushmesh_edge_tokens_verified_total{result="token_expired"} 1
pushmesh_edge_tokens_verified_total{result="unauthenticated"} 2
pushmesh_edge_tokens_verified_total{result="unavailable"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		<-v.room
		if n := testutil.ToFloat64(v.metrics.verified.WithLabelValues("overloaded")); n != 1 {
			t.Errorf("%v refusals for want of a turn", n)
		}
	})
}
