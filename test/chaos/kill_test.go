// Package chaos kills the processes of a mesh and checks from outside that the promises hold.
package chaos

import (
	"os"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	procmesh.Cleanup()
	os.Exit(code)
}

// Every tier and NATS is killed with SIGKILL once, half way through a replay, and started again:
// everything published and answered reaches everyone.
func TestNothingIsLostWhenAProcessIsKilled(t *testing.T) {
	t.Parallel()
	m := begin(t, procmesh.Options{Edges: 2, Routers: 2, DB: pgtest.URL(t)})
	for _, victim := range []*procmesh.Process{m.Edges[0], m.Routers[0], m.Stores[0], m.NATS} {
		t.Run(victim.Name, func(t *testing.T) {
			replay(t, m, func() {
				victim.Kill()
				if err := victim.Start(); err != nil {
					t.Error(err)
				}
			})
			m.WaitReady(t)
		})
	}
}
