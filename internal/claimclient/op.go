package claimclient

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// retryAfter is what callers are told to wait.
const retryAfter = 250 * time.Millisecond

// op is an operation on its way. Its end is told once.
type op struct {
	client *Client
	m      *meshv1.ClaimOp
	shard  int
	began  time.Time
	done   func(*meshv1.ClaimResult)

	tie     *tie   // of m.Conn; nil: without
	watches bool   // it made tie watch
	check   *entry // that the keeper asks about; nil: a caller's
	counted bool   // in underWay
	moved   bool   // it was refused with CONFLICT before

	link   *link // where it is; the link's lock
	sent   bool
	over   atomic.Bool
	unhook func() bool
}

// follow ends the operation with ctx.
func (o *op) follow(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	b := &o.client.shards[o.shard]
	o.unhook = context.AfterFunc(ctx, func() {
		b.mu.Lock()   // until Do is through with it
		b.mu.Unlock() //nolint:staticcheck // see above
		o.finish(nil, failure(wirev1.Code_CODE_UNAVAILABLE, "the time allowed for the operation has ended: "+context.Cause(ctx).Error()), true)
	})
}

// late reports whether the operation's time is over.
func (o *op) late(now time.Time) bool { return now.Sub(o.began) >= o.client.cfg.Timeout }

// finish hands on what came of it, unless something else did before. from is the link that
// answered, nil for what this side says; sent: a store may have done it. No bucket is locked.
func (o *op) finish(from *link, r *meshv1.ClaimResult, sent bool) {
	if !o.over.CompareAndSwap(false, true) {
		return
	}
	o.release()
	o.client.settle(o, from, r, sent)
	o.tell(r)
}

func (o *op) release() {
	if o.unhook != nil {
		o.unhook()
	}
	if o.counted {
		o.client.underWay.Add(-1)
	}
}

func (o *op) tell(r *meshv1.ClaimResult) {
	if o.done != nil {
		o.done(r)
	}
}

// refuse ends an operation that was never sent; its bucket may be locked.
func (c *Client) refuse(o *op, r *meshv1.ClaimResult) {
	if !o.over.CompareAndSwap(false, true) {
		return
	}
	o.release()
	c.failed.add(func() {
		c.settle(o, nil, r, false)
		o.tell(r)
	})
}

func failure(k wirev1.Code, why string) *meshv1.ClaimResult {
	return &meshv1.ClaimResult{Code: k, Error: why, RetryAfterMs: uint32(retryAfter.Milliseconds())}
}

func stoppedResult() *meshv1.ClaimResult {
	return failure(wirev1.Code_CODE_UNAVAILABLE, "the node is stopping")
}

// again has operations that a store refused since another owns the shard: they are sent once more
// after the owners were asked for.
type again struct {
	wake chan struct{}

	mu   sync.Mutex
	ops  []*op
	over bool
}

// add is false once the client has stopped.
func (a *again) add(o *op) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return false
	}
	a.ops = append(a.ops, o)
	awake(a.wake)
	return true
}

func (a *again) take() []*op {
	a.mu.Lock()
	defer a.mu.Unlock()
	ops := a.ops
	a.ops = nil
	return ops
}

func (a *again) end() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	for _, o := range a.take() {
		o.finish(nil, stoppedResult(), false)
	}
}

func (c *Client) tryAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.again.wake:
		}
		ops := c.again.take()
		err := c.cfg.Stores.Refreshed(ctx)
		for _, o := range ops {
			switch {
			case err != nil:
				o.finish(nil, stoppedResult(), false)
			case o.late(time.Now()):
				o.finish(nil, failure(wirev1.Code_CODE_UNAVAILABLE, "the store that owns the resource's shard was not found in time"), false)
			default:
				c.resend(o)
			}
		}
	}
}

func (c *Client) resend(o *op) {
	o.m = proto.CloneOf(o.m) // whoever sent it may still look at it
	b := &c.shards[o.shard]
	b.mu.Lock()
	failed := c.send(o)
	b.mu.Unlock()
	if failed != nil {
		o.finish(nil, failed, false)
	}
}

// failures calls back for operations that failed before they left.
type failures struct {
	wake chan struct{}

	mu    sync.Mutex
	calls []func()
	over  bool
}

func (f *failures) add(call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		go call()
		return
	}
	f.calls = append(f.calls, call)
	awake(f.wake)
}

func (f *failures) run() {
	f.mu.Lock()
	calls := f.calls
	f.calls = nil
	f.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

func (f *failures) end() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.run()
}

func (c *Client) tellFailures(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.failed.wake:
			c.failed.run()
		}
	}
}

func awake(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
