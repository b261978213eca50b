// Package claimclient is the side of claims of those nodes that have owners: edges and routers. It
// sends each operation to the store that owns the resource's shard, over one stream to each store,
// and knows which connection is to be told what becomes of a place. A push that is lost is found by
// asking again.
package claimclient

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Defaults of a Config's fields.
const (
	DefaultTimeout     = 5 * time.Second
	DefaultRecheck     = 30 * time.Second
	DefaultMaxUnderWay = 1 << 16
	DefaultMaxTies     = 1 << 19
)

// Config of a client.
type Config struct {
	// Node is "edge:" or "router:" and the id; Incarnation is the random number of the process.
	Node        string
	Incarnation uint64
	Stores      *storeclient.Client
	// Tell says to a connection what became of its owner's place at st.Resource, or of a resource
	// that it watches. It is called by one goroutine at a time for a resource, in the order of what
	// happened, never after End(conn) has returned. It must not block or call the client. st is
	// shared: nobody may change it.
	Tell func(conn uint64, owner string, st *wirev1.ClaimState)
	// Timeout of an operation; Recheck is how often it is asked what a connection should know. 0:
	// the default.
	Timeout, Recheck time.Duration
	// MaxUnderWay operations that have no answer yet; MaxTies pairs of a connection and an owner's
	// place. 0: the default. What is more is OVERLOADED.
	MaxUnderWay, MaxTies int
	Log                  *slog.Logger
	// Tier names the metrics in Registry: "edge" or "router". Without a registry there are none.
	Tier     string
	Registry prometheus.Registerer
}

// Client is a lifecycle.Part, safe for concurrent use. It owns a stream to each store that it has
// asked anything, and goroutines that keep them and what is known about places fresh.
type Client struct {
	cfg      Config
	group    *lifecycle.Group
	metrics  *metrics
	shards   [topic.Shards]bucket
	conns    connIndex
	ties     atomic.Int64
	underWay atomic.Int64
	keeper   keeper
	again    again
	failed   failures

	mu      sync.RWMutex
	links   map[string]*link // by address
	stopped bool
}

// New makes a client that refuses before Start.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Timeout = orDefault(cfg.Timeout, DefaultTimeout)
	cfg.Recheck = orDefault(cfg.Recheck, DefaultRecheck)
	cfg.MaxUnderWay = orDefault(cfg.MaxUnderWay, DefaultMaxUnderWay)
	cfg.MaxTies = orDefault(cfg.MaxTies, DefaultMaxTies)
	c := &Client{cfg: cfg, group: lifecycle.NewGroup(context.Background()), links: map[string]*link{}, stopped: true}
	c.conns.init()
	c.keeper.wake, c.again.wake, c.failed.wake = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	c.metrics = newMetrics(c)
	return c
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Start begins to keep places fresh; it waits for no store.
func (c *Client) Start(context.Context) error {
	c.mu.Lock()
	c.stopped = false
	c.mu.Unlock()
	c.group.Go("claimclient-keeper", c.keep)
	c.group.Go("claimclient-again", c.tryAgain)
	c.group.Go("claimclient-failed", c.tellFailures)
	return nil
}

// Stop ends every stream. What is under way, and everything after it, is UNAVAILABLE.
func (c *Client) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	err := c.group.Stop(ctx)
	c.again.end()
	c.failed.end()
	return err
}

// Do sends an operation to the store that has its resource, and hands done what came of it: exactly
// once, on another goroutine, which it must not hold up. It never blocks. The client sets op's ref
// and keeps it. Codes are those of a ClaimResult without CONFLICT; UNAVAILABLE too where ctx or the
// time for an operation is over, OVERLOADED where too much is under way.
//
// With a conn, Tell tells it from the result on: of its owner's place until that ends, and after
// KIND_WATCH of the resource while there is no such place, until KIND_LEAVE; of everything until
// End(conn). A number of a connection is never used again. Of several connections with one owner at
// a resource, each is told.
func (c *Client) Do(ctx context.Context, m *meshv1.ClaimOp, done func(*meshv1.ClaimResult)) {
	o := &op{client: c, m: m, shard: topic.Shard(m.GetResource()), began: time.Now(), done: done, counted: true}
	if c.underWay.Add(1) > int64(c.cfg.MaxUnderWay) {
		c.refuse(o, failure(wirev1.Code_CODE_OVERLOADED, "too many operations on claims are under way"))
		return
	}
	b := &c.shards[o.shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.GetConn() != 0 && !c.register(b, o) {
		c.refuse(o, failure(wirev1.Code_CODE_OVERLOADED, "too many claims are watched through this process"))
		return
	}
	o.follow(ctx)
	if failed := c.send(o); failed != nil {
		c.refuse(o, failed)
	}
}

// Call is Do that waits. Its errors are code.Error.
func (c *Client) Call(ctx context.Context, m *meshv1.ClaimOp) (*wirev1.ClaimState, error) {
	answer := make(chan *meshv1.ClaimResult, 1)
	c.Do(ctx, m, func(r *meshv1.ClaimResult) { answer <- r })
	r := <-answer
	if r.GetCode() != wirev1.Code_CODE_OK {
		return nil, code.Retry(r.GetCode(), time.Duration(r.GetRetryAfterMs())*time.Millisecond, r.GetError())
	}
	return r.GetState(), nil
}

// End says that a connection is gone: it is told nothing any more, and the stores hear of it as
// soon as they can be reached.
func (c *Client) End(conn uint64) {
	for _, e := range c.conns.take(conn) {
		b := &c.shards[e.shard]
		b.mu.Lock()
		if t := e.find(conn); t != nil {
			t.ended = true
			c.unwatch(b, e, t)
			c.tidy(b, e)
		}
		b.mu.Unlock()
	}
}

// send puts an operation on the stream to its shard's owner, or says why it can't. The shard's
// bucket is locked, so that operations on a resource leave in the order in which they came.
func (c *Client) send(o *op) *meshv1.ClaimResult {
	addr, _, err := c.cfg.Stores.Owner(o.shard)
	if err != nil {
		e := code.From(err)
		return &meshv1.ClaimResult{Code: e.Code, Error: e.Message, RetryAfterMs: uint32(e.RetryAfter.Milliseconds())}
	}
	for {
		l := c.linkTo(addr)
		if l == nil {
			return stoppedResult()
		}
		if l.put(o) {
			return nil
		}
		c.unlink(l) // it has ended meanwhile
	}
}

// linkTo is nil once the client stops.
func (c *Client) linkTo(addr string) *link {
	c.mu.RLock()
	l, stopped := c.links[addr], c.stopped
	c.mu.RUnlock()
	if l != nil || stopped {
		return l
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.links[addr]; l != nil || c.stopped {
		return l
	}
	l = newLink(c, addr)
	c.links[addr] = l
	c.group.Go("claimclient-stream", l.run)
	return l
}

// unlink forgets a link whose store owns nothing any more.
func (c *Client) unlink(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links[l.addr] == l {
		delete(c.links, l.addr)
	}
}

func (c *Client) allLinks() []*link {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*link, 0, len(c.links))
	for _, l := range c.links {
		all = append(all, l)
	}
	return all
}
