package e2e

import (
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// /readyz?verbose of every tier names what is missing, and forgets it when it is back.
func TestReadyzNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	m := procmesh.Start(t, procmesh.Options{DB: pg.URL()})
	edge, router, store := m.Edges[0], m.Routers[0], m.Stores[0]

	t.Run("NATS", func(t *testing.T) {
		m.NATS.Kill()
		procmesh.Await(t, "the edge stays ready and names NATS", func() bool {
			status, body := edge.Status()
			return status == 200 && strings.Contains(body, "nats: degraded")
		})
		procmesh.Await(t, "the router is not ready for want of NATS", func() bool {
			status, body := router.Status()
			return status == 503 && strings.Contains(body, "nats: missing")
		})
		restart(t, m.NATS)
		m.WaitReady(t)
	})
	t.Run("routers", func(t *testing.T) {
		router.Kill()
		procmesh.Await(t, "the edge names the routers", func() bool {
			status, body := edge.Status()
			return status == 200 && strings.Contains(body, "routers: degraded")
		})
		restart(t, router)
		m.WaitReady(t)
	})
	t.Run("Postgres", func(t *testing.T) {
		if err := pg.Kill(); err != nil {
			t.Fatal(err)
		}
		procmesh.Await(t, "the store names its database", func() bool {
			status, body := store.Status()
			return status == 503 && strings.Contains(body, "postgres: missing")
		})
		if err := pg.Restart(); err != nil {
			t.Fatal(err)
		}
		m.WaitReady(t)
	})
}

func restart(t *testing.T, p *procmesh.Process) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}
