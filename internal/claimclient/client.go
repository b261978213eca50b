// Package claimclient sends the claims of clients and backends from edges and routers to stores. It
// sends each operation to the store that owns the resource's shard, over one stream to each store,
// and knows which connections are notified of a claim's changes. It finds changes whose push was
// lost by asking again.
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
	// Notify sends a connection a change of its owner's place at st.Resource, or of a resource that
	// it watches. It is called by one goroutine at a time for a resource, in the order of the
	// changes, and never after End(conn) has returned. It must not block or call the client. st is
	// shared and must not be changed.
	Notify func(conn uint64, owner string, st *wirev1.ClaimState)
	// Timeout of an operation; Recheck is how often the state of each claim is asked for again. 0:
	// the default.
	Timeout, Recheck time.Duration
	// MaxUnderWay is the most operations without an answer, MaxTies the most pairs of a connection
	// and an owner's place. 0: the default. Further operations are OVERLOADED.
	MaxUnderWay, MaxTies int
	Log                  *slog.Logger
	// Tier names the metrics in Registry: "edge" or "router". Without a registry there are none.
	Tier     string
	Registry prometheus.Registerer
}

// Client is a lifecycle.Part, safe for concurrent use. It owns a stream to each store that it has
// sent an operation to, and the goroutines that keep the streams open and the places up to date.
type Client struct {
	cfg      Config
	group    *lifecycle.Group
	metrics  *metrics
	shards   [topic.Shards]bucket
	conns    connIndex
	ties     atomic.Int64
	underWay atomic.Int64
	keeper   keeper
	retries  retries
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
	c.keeper.wake, c.retries.wake, c.failed.wake = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	c.metrics = newMetrics(c)
	return c
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Start begins to keep places up to date; it waits for no store.
func (c *Client) Start(context.Context) error {
	c.mu.Lock()
	c.stopped = false
	c.mu.Unlock()
	c.group.Go("claimclient-keeper", c.keep)
	c.group.Go("claimclient-again", c.tryAgain)
	c.group.Go("claimclient-failed", c.reportFailures)
	return nil
}

// Stop ends every stream. Operations under way, and all later ones, are UNAVAILABLE.
func (c *Client) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	err := c.group.Stop(ctx)
	c.retries.end()
	c.failed.end()
	return err
}

// Do sends an operation to the store that owns its resource's shard, and calls done with the
// result: exactly once, on another goroutine, which done must not block. Do never blocks. The
// client sets m's ref and keeps m. Codes are those of a ClaimResult without CONFLICT; UNAVAILABLE
// also if ctx or the time for an operation has ended, OVERLOADED if too many operations are under
// way.
//
// A connection (conn) is notified from the result on: of its owner's place until that ends and,
// after KIND_WATCH, of the resource while there is no such place, until KIND_LEAVE; of everything
// until End(conn). The number of a connection is never used again. If several connections have the
// same owner at a resource, each is notified.
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
