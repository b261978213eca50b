// Package storeclient reaches the store's owners: it keeps the map of shards to stores, one gRPC
// connection for each store, and sends every call where it belongs.
package storeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// retryAfter is what a caller is told where a shard has no owner: takeovers last a few seconds.
const retryAfter = 250 * time.Millisecond

// Config of a client.
type Config struct {
	// Seeds are addresses of some stores, host:port; the others are learnt.
	Seeds []string
	// DialOptions come after the client's own (no TLS, 16 MiB a message).
	DialOptions []grpc.DialOption
	// Mesh that the process belongs to: the stores tell it, and a store of another mesh is not
	// believed. nil: the client's own.
	Mesh *meshid.Identity
	Log  *slog.Logger
}

// Client is a lifecycle.Part, safe for concurrent use. It owns its connections (one for each store,
// at most maxStores) and one goroutine that keeps the map fresh.
type Client struct {
	cfg   Config
	waits waits
	kick  chan struct{}
	group *lifecycle.Group
	dials *dials

	mu     sync.RWMutex
	owners [topic.Shards]string // "": none
	// by address: the last answer to Owners, or when it became an owner
	lastAnswer map[string]time.Time
	foreign    map[string]error // by address: why a known store's last answer was not believed
	changed    chan struct{}    // closed at the next change of owners
	waiting    []chan struct{}  // closed at the end of the next round that begins
}

// New makes a client that knows no owner yet.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Mesh == nil {
		cfg.Mesh = meshid.New("")
	}
	return &Client{
		cfg:        cfg,
		waits:      defaultWaits,
		kick:       make(chan struct{}, 1),
		group:      lifecycle.NewGroup(context.Background()),
		dials:      newDials(append(cfg.Mesh.DialOptions(), cfg.DialOptions...)),
		lastAnswer: map[string]time.Time{},
		foreign:    map[string]error{},
		changed:    make(chan struct{}),
	}
}

// Start begins to ask who owns what; it waits for no store.
func (c *Client) Start(context.Context) error {
	c.group.Go("storeclient-owners", c.keepFresh)
	return nil
}

// Stop ends the goroutine and closes every connection: calls under way fail.
func (c *Client) Stop(ctx context.Context) error {
	return errors.Join(c.group.Stop(ctx), c.dials.close())
}

// Check is a health check: nil if an owner of every shard is known and has answered lately.
func (c *Client) Check() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	missing, silent := 0, map[string]bool{}
	for _, addr := range c.owners {
		switch {
		case addr == "":
			missing++
		case c.silent(addr):
			silent[addr] = true
		}
	}
	var errs []error
	if missing > 0 {
		errs = append(errs, fmt.Errorf("no store owns %d of %d shards", missing, topic.Shards))
	}
	for addr := range silent {
		errs = append(errs, fmt.Errorf("store %s does not answer", addr))
	}
	return errors.Join(append(errs, c.refused()...)...)
}

// CheckMesh is nil unless a store that the client was told of, or learned of, belongs to another
// mesh.
func (c *Client) CheckMesh() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return errors.Join(c.refused()...)
}

// refused are the stores of other meshes, in the order of their addresses. c.mu is held.
func (c *Client) refused() (errs []error) {
	for _, addr := range slices.Sorted(maps.Keys(c.foreign)) {
		errs = append(errs, fmt.Errorf("store %s: %w", addr, c.foreign[addr]))
	}
	return errs
}

// CheckAny is nil if the owner of any shard is known and has answered lately.
func (c *Client) CheckAny() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	last := ""
	for _, addr := range c.owners {
		if addr == last {
			continue
		}
		if !c.silent(addr) {
			return nil
		}
		last = addr
	}
	return errors.New("no store that owns shards answers")
}

// Silent reports whether a store has not answered for so long that nothing shall be sent to it. It
// is asked all the time, and no longer silent with its first answer.
func (c *Client) Silent(addr string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.silent(addr)
}

// silent: c.mu is held.
func (c *Client) silent(addr string) bool { return time.Since(c.lastAnswer[addr]) > c.waits.silent }

// whyUnowned is the most likely reason why a shard has no owner. Stores give up their shards where
// the database does not confirm that they own them.
func (c *Client) whyUnowned() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if slices.ContainsFunc(c.owners[:], func(addr string) bool { return addr != "" }) {
		return "another store is about to take it over"
	}
	for addr := range c.lastAnswer {
		if !c.silent(addr) {
			return "stores answer and own no shards, as they do while their database is away"
		}
	}
	return "no store answers"
}

// Owner of a shard: its address and a stub. UNAVAILABLE, retryable, where none is known, or the one
// known is silent.
func (c *Client) Owner(shard int) (addr string, stub meshv1.StoreServiceClient, err error) {
	c.mu.RLock()
	addr = c.owners[shard]
	silent := addr != "" && c.silent(addr)
	c.mu.RUnlock()
	if addr == "" {
		c.Refresh()
		return "", nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, fmt.Sprintf("no store owns shard %d now: %s", shard, c.whyUnowned()))
	}
	if silent {
		c.Refresh()
		return "", nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "store "+addr+" does not answer")
	}
	if stub, err = c.dials.to(addr); err != nil {
		return "", nil, err
	}
	return addr, stub, nil
}

// Changed is closed at the next change of the owner map. Take it before reading the map, so that no
// change is missed.
func (c *Client) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Refresh asks Owners soon. Many calls make one round.
func (c *Client) Refresh() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// To is the stub for a store's address, whether it owns anything or not.
func (c *Client) To(addr string) (meshv1.StoreServiceClient, error) { return c.dials.to(addr) }

// Owns reports whether a store owns any shard, as far as is known.
func (c *Client) Owns(addr string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Contains(c.owners[:], addr)
}

// Refreshed waits for a round that begins after the call.
func (c *Client) Refreshed(ctx context.Context) error {
	done := make(chan struct{})
	c.mu.Lock()
	c.waiting = append(c.waiting, done)
	c.mu.Unlock()
	c.Refresh()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.group.Context().Done():
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the store client has stopped")
	}
}

// distinct owners, in the order of their first shard, and whether every shard has one.
func (c *Client) distinct() (addrs []string, complete bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	complete = true
	seen := map[string]bool{}
	for _, addr := range c.owners {
		switch {
		case addr == "":
			complete = false
		case !seen[addr]:
			seen[addr] = true
			addrs = append(addrs, addr)
		}
	}
	return addrs, complete
}

// OwnerOf is the address of the store that owns a shard, as far as is known; "" where none does.
// Who keeps calls for many shards apart by it has none of them wait for another's owner.
func (c *Client) OwnerOf(shard int) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.owners[shard]
}
