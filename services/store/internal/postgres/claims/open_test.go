package claims

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func owner(id string) backend.Owner {
	return backend.Owner{StoreID: id, Incarnation: 1, Address: id + ":1"}
}

func now() uint64 { return uint64(time.Now().UnixMicro()) }

// serverAt has a database that is only slow answer in its own time.
func serverAt(t *testing.T, url string) *server.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
	defer cancel()
	s, err := server.Open(ctx, server.Config{URL: url, Patience: backendtest.Patience, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	need(t, err)
	t.Cleanup(func() { need(t, s.Close()) })
	return s
}

func open(t *testing.T, url string) *Claims {
	t.Helper()
	s := serverAt(t, url)
	return New(s)
}
