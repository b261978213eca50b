// Package computeclient asks compute nodes to rank: jobs go over one stream to each node, many
// together, and answers come as they are done. It refuses rather than queues, leaves nodes that are
// gone or don't answer, and knows what it costs to ship a job.
package computeclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// MaxMessage lets 100,000 candidates with their features through.
	MaxMessage = 64 << 20
	// maxUnderWay jobs at one node.
	maxUnderWay = 4096
	// maxBytes of the jobs under way at one node.
	maxBytes = 256 << 20
)

// Config of a client.
type Config struct {
	// Addrs of compute nodes; none: every job is UNAVAILABLE.
	Addrs []string
	// Caller is the name that jobs without one go under.
	Caller string
	// Dial options beside the client's own.
	Dial []grpc.DialOption
}

// Client is a lifecycle.Part that owns a connection and a stream to each node.
type Client struct {
	cfg   Config
	group *lifecycle.Group
	nodes []*node
	ships shipping
	begun chan struct{} // closed when the first node is connected
	first sync.Once

	mu      sync.Mutex
	next    int
	stopped bool
}

// New makes a client that refuses before Start.
func New(cfg Config) *Client { return &Client{cfg: cfg, begun: make(chan struct{})} }

// Start makes the connections; it does not wait for them.
func (c *Client) Start(ctx context.Context) error {
	c.group = lifecycle.NewGroup(context.WithoutCancel(ctx))
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(MaxMessage), grpc.MaxCallRecvMsgSize(MaxMessage)),
		grpc.WithIdleTimeout(0),
	}, c.cfg.Dial...)
	for _, addr := range c.cfg.Addrs {
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			return errors.Join(fmt.Errorf("compute %q: %w", addr, err), c.Stop(context.Background()))
		}
		c.nodes = append(c.nodes, newNode(conn, c))
	}
	for _, n := range c.nodes {
		c.group.Go("computeclient-node", n.run)
	}
	return nil
}

// Stop answers what is under way UNAVAILABLE and closes the connections.
func (c *Client) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	errs := []error{c.group.Stop(ctx)}
	for _, n := range c.nodes {
		errs = append(errs, n.conn.Close())
	}
	return errors.Join(errs...)
}

// Begun waits until a node was connected for the first time, if there are any, or ctx ends.
func (c *Client) Begun(ctx context.Context) {
	if len(c.nodes) == 0 {
		return
	}
	select {
	case <-c.begun:
	case <-ctx.Done():
	}
}

// Conns are the connections to the nodes, for other calls.
func (c *Client) Conns() []*grpc.ClientConn {
	out := make([]*grpc.ClientConn, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.conn
	}
	return out
}

// Check is a health check: nil while a node takes jobs.
func (c *Client) Check() error {
	for _, n := range c.nodes {
		if n.connected() {
			return nil
		}
	}
	return fmt.Errorf("none of %d compute nodes is connected: ranking is refused", len(c.nodes))
}

var errNoNode = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no compute node is configured (--computes)")

// Do has a job done and waits for its answer, or for the end of ctx. A node that is full refuses
// for all, since the others get the same load; a job whose node went away is asked of another one.
// ctx's deadline goes with the job.
func (c *Client) Do(ctx context.Context, job *meshv1.RankJobRequest) (*meshv1.RankJobResponse, error) {
	call, err := newCall(ctx, job, c.cfg.Caller)
	if err != nil {
		return nil, err
	}
	var tried []*node
	last := errNoNode
	for {
		n := c.pick(tried)
		if n == nil {
			return nil, last
		}
		resp, err := n.do(ctx, call)
		var broken *brokenError
		if !errors.As(err, &broken) {
			return resp, err
		}
		last = broken.why
		tried = append(tried, n)
	}
}

// pick chooses the node with the least under way, of those connected and not tried. One that lets
// jobs time out is asked only now and then, unless there is no other.
func (c *Client) pick(tried []*node) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.next++
	var best *node
	var least load
	now := time.Now()
	for i := range c.nodes {
		n := c.nodes[(c.next+i)%len(c.nodes)]
		l, ok := n.load(now)
		if !ok || slices.Contains(tried, n) {
			continue
		}
		if best == nil || l.less(least) {
			best, least = n, l
		}
	}
	if best != nil {
		best.picked(now)
	}
	return best
}
