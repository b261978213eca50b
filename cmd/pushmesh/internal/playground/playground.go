// Package playground is the page that `pushmesh dev` serves: what a mesh does, to be seen and
// played with in a browser. The page is a client of the mesh like any other, by WebSocket; this
// package hands it out, gives it namespaces to play in, and publishes prices while somebody looks
// at them.
package playground

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
)

// Playground listens from the beginning, for the edge must know where the page comes from; it
// answers once it is started.
type Playground struct {
	listener net.Listener
	parts    lifecycle.Stack
}

// Listen opens the address of the page, which is on loopback.
func Listen(addr string) (*Playground, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%q is not on loopback: the page is for this machine, like 127.0.0.1:7484", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Playground{listener: l}, nil
}

// Addr is where the page is.
func (p *Playground) Addr() string { return p.listener.Addr().String() }

// Origin is how browsers name the page to the edge.
func (p *Playground) Origin() string { return "http://" + p.Addr() }

// URL is the link to the page.
func (p *Playground) URL() string { return p.Origin() + "/" }

// Start makes the namespaces and serves the page of a mesh that is up.
func (p *Playground) Start(ctx context.Context, edge, router string) error {
	page, err := newPage(p.Addr(), edge, router)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(router, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	p.parts.Add("connection to the router", lifecycle.Funcs{OnStop: func(context.Context) error { return conn.Close() }})
	p.parts.Add("namespaces", lifecycle.Funcs{OnStart: func(ctx context.Context) error { return prepare(ctx, conn) }})
	p.parts.Add("market", newMarket(conn))
	p.parts.Add("page", p.server(page))
	return p.parts.Start(ctx)
}

// server serves the page until it is stopped.
func (p *Playground) server(page http.Handler) lifecycle.Part {
	s := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	ended := make(chan error, 1)
	return lifecycle.Funcs{
		OnStart: func(context.Context) error {
			go func() { ended <- s.Serve(p.listener) }()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := s.Shutdown(ctx)
			if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
				err = errors.Join(err, served)
			}
			return err
		},
	}
}

// Stop ends it.
func (p *Playground) Stop(ctx context.Context) error { return p.parts.Stop(ctx) }

// Close gives up the address of one that was not started.
func (p *Playground) Close() error { return p.listener.Close() }
