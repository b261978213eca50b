package edgetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/ports"
)

// NATS is a server in this process.
type NATS struct {
	t    testing.TB
	port int

	mu  sync.Mutex
	srv *server.Server
}

// NewNATS starts a server; it ends with the test.
func NewNATS(t testing.TB) *NATS {
	port, err := ports.Port()
	if err != nil {
		t.Fatal(err)
	}
	n := &NATS{t: t, port: port}
	n.Up()
	t.Cleanup(n.Down)
	return n
}

// URL of the server, the same after Down and Up.
func (n *NATS) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv.ClientURL()
}

// Up starts it.
func (n *NATS) Up() {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: n.port, NoLog: true, NoSigs: true})
	if err != nil {
		n.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(Patience) {
		n.t.Fatal("the NATS server does not start")
	}
	n.mu.Lock()
	n.srv = srv
	n.mu.Unlock()
}

// Down stops it.
func (n *NATS) Down() {
	n.mu.Lock()
	srv := n.srv
	n.mu.Unlock()
	srv.Shutdown()
	srv.WaitForShutdown()
}

// Bus connected to it; it ends with the test.
func (n *NATS) Bus(name string) *bus.Bus {
	b := bus.New(bus.Config{URL: n.URL(), Name: name, Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		_ = b.Stop(ctx) // the server may be gone already
	})
	WaitFor(n.t, "NATS", b.Check)
	return b
}
