package inprocess

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsReady is how long the embedded server may take to listen.
const natsReady = 10 * time.Second

// NATS is an embedded NATS server on a free port of loopback, without JetStream: the fast
// path, nothing is kept in it. It is a lifecycle.Part.
type NATS struct {
	srv *server.Server
}

// Start listens.
func (n *NATS) Start(context.Context) error {
	srv, err := server.NewServer(&server.Options{
		ServerName: "pushmesh", Host: "127.0.0.1", Port: server.RANDOM_PORT,
		NoSigs: true, NoLog: true, NoSystemAccount: true,
		// an edge in the same process catches up sooner than it pays to drop it
		MaxPending: 256 << 20,
	})
	if err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(natsReady) {
		srv.Shutdown()
		return errors.New("nats: not ready in time")
	}
	n.srv = srv
	return nil
}

// URL for clients, once started.
func (n *NATS) URL() string { return n.srv.ClientURL() }

// Stop ends the server and waits for it.
func (n *NATS) Stop(context.Context) error {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
	return nil
}
