// Package handover carries what subscribers claim from their loops to the client of the stores, and
// what that tells back to the loops.
package handover

import (
	"context"
	"sync"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
)

// Client does what claims ask of stores: claimclient.Client has it.
type Client interface {
	// Do calls done exactly once, on another goroutine, after some seconds at most.
	Do(ctx context.Context, op *meshv1.ClaimOp, done func(*meshv1.ClaimResult))
	// End says that a connection is gone, also to what is under way for it.
	End(conn uint64)
}

// Claims implements exchange.Claims. It is a lifecycle.Part, whose goroutine asks the client.
type Claims struct {
	client Client
	post   func(loop uint16, e exchange.Event)
	ops    *serial.Queue
	group  *lifecycle.Group

	mu    sync.Mutex
	conns map[uint64]exchange.Conn // that have asked, until they end
}

// New makes one. post hands an event to a loop and keeps the order of what it is given.
func New(post func(loop uint16, e exchange.Event)) *Claims {
	return &Claims{post: post, ops: serial.New(), conns: map[uint64]exchange.Conn{}}
}

// Use says who is asked. It is called once, before Start.
func (c *Claims) Use(client Client) { c.client = client }

// Start begins to ask.
func (c *Claims) Start(context.Context) error {
	c.group = lifecycle.NewGroup(context.Background())
	c.group.Go("edge-claims", c.ops.Serve)
	return nil
}

// Stop ends asking. What is not answered the client answers when it stops.
func (c *Claims) Stop(ctx context.Context) error { return c.group.Stop(ctx) }

// Claim implements exchange.Claims. How much waits is bounded by what each connection may have
// unanswered.
func (c *Claims) Claim(conn exchange.Conn, id uint32, op *meshv1.ClaimOp) {
	c.ops.Do(func() {
		if op.GetConn() != 0 {
			c.mu.Lock()
			c.conns[op.GetConn()] = conn
			c.mu.Unlock()
		}
		c.client.Do(context.Background(), op, func(r *meshv1.ClaimResult) {
			c.post(conn.Loop, exchange.Claimed{Conn: conn, ID: id, Result: r})
		})
	})
}

// EndClaims implements exchange.Claims.
func (c *Claims) EndClaims(connectionID uint64) {
	c.ops.Do(func() {
		c.mu.Lock()
		delete(c.conns, connectionID)
		c.mu.Unlock()
		c.client.End(connectionID)
	})
}

// Notify is what the client calls for a connection. A state for one that is gone is of no use to
// anybody.
func (c *Claims) Notify(conn uint64, _ string, st *wirev1.ClaimState) {
	c.mu.Lock()
	at, lives := c.conns[conn]
	c.mu.Unlock()
	if lives {
		c.post(at.Loop, exchange.ClaimTold{Conn: at, State: st})
	}
}
