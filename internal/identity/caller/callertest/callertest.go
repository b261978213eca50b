// Package callertest is a backend for tests of what asks one.
package callertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/pushmesh/pushmesh/internal/outbound"
)

// Backend answers questions on loopback, until the test ends.
type Backend struct {
	*httptest.Server
	Asked atomic.Int64
}

// New makes a backend.
func New(t testing.TB, answer http.HandlerFunc) *Backend {
	t.Helper()
	b := &Backend{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.Asked.Add(1)
		answer(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

// Says answers with a status and a body.
func Says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Guard lets loopback be called.
func Guard(t testing.TB) *outbound.Guard {
	t.Helper()
	allow, err := outbound.ParseAllow([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return outbound.New(outbound.Config{Metric: "refused", Allow: allow})
}

// Ends stops what asks, with the test.
func Ends(t testing.TB, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		if err := stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
