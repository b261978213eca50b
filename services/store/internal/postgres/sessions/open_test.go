package sessions

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/partition"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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

func open(t *testing.T, url string) *Sessions {
	t.Helper()
	s := serverAt(t, url)
	return opened(t, s)
}

func opened(t *testing.T, s *server.Server) *Sessions {
	t.Helper()
	p := partition.New(s)
	need(t, p.MakeSlices(t.Context(), now()))
	d, err := New(s, p)
	need(t, err)
	return d
}
