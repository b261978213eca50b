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

// retryAfter is how long callers should wait before they try again.
const retryAfter = 250 * time.Millisecond

// op is an operation under way. Its result is reported once.
type op struct {
	client *Client
	m      *meshv1.ClaimOp
	shard  int
	began  time.Time
	done   func(*meshv1.ClaimResult)

	tie     *tie   // of m.Conn; nil: the operation has none
	first   bool   // this operation made tie
	watches bool   // this operation made tie watch
	check   *entry // the entry that the keeper asks about; nil: a caller's operation
	counted bool   // in underWay
	moved   bool   // it was refused with CONFLICT before

	link   *link // where it is; the link's lock
	sent   bool
	ended  atomic.Bool
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

// late reports whether the operation has taken too long.
func (o *op) late(now time.Time) bool { return now.Sub(o.began) >= o.client.cfg.Timeout }

// finish reports the operation's result, unless it has ended before. from is the link that
// answered, nil if this side ends the operation; sent: a store may have carried it out. No bucket
// is locked.
func (o *op) finish(from *link, r *meshv1.ClaimResult, sent bool) {
	if !o.ended.CompareAndSwap(false, true) {
		return
	}
	o.release()
	o.report(o.client.applyResult(o, from, r, sent))
}

func (o *op) release() {
	if o.unhook != nil {
		o.unhook()
	}
	if o.counted {
		o.client.underWay.Add(-1)
	}
}

func (o *op) report(r *meshv1.ClaimResult) {
	if o.done != nil {
		o.done(r)
	}
}

// refuse ends an operation that was never sent; its bucket may be locked.
func (c *Client) refuse(o *op, r *meshv1.ClaimResult) {
	if !o.ended.CompareAndSwap(false, true) {
		return
	}
	o.release()
	c.failed.add(func() {
		o.report(c.applyResult(o, nil, r, false))
	})
}

func failure(k wirev1.Code, why string) *meshv1.ClaimResult {
	return &meshv1.ClaimResult{Code: k, Error: why, RetryAfterMs: uint32(retryAfter.Milliseconds())}
}

func stoppedResult() *meshv1.ClaimResult {
	return failure(wirev1.Code_CODE_UNAVAILABLE, "the node is stopping")
}

// retries has operations that a store refused because another one owns the shard: they are sent
// once more after the owners were asked for.
type retries struct {
	wake chan struct{}

	mu    sync.Mutex
	ops   []*op
	ended bool
}

// add is false once the client has stopped.
func (a *retries) add(o *op) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	a.ops = append(a.ops, o)
	awake(a.wake)
	return true
}

func (a *retries) take() []*op {
	a.mu.Lock()
	defer a.mu.Unlock()
	ops := a.ops
	a.ops = nil
	return ops
}

func (a *retries) end() {
	a.mu.Lock()
	a.ended = true
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
		case <-c.retries.wake:
		}
		ops := c.retries.take()
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
	b := &c.shards[o.shard]
	b.mu.Lock()
	o.m = proto.CloneOf(o.m) // the first stream may still read it
	failed := c.send(o)
	b.mu.Unlock()
	if failed != nil {
		o.finish(nil, failed, false)
	}
}

// failures reports operations that failed before they were sent.
type failures struct {
	wake chan struct{}

	mu    sync.Mutex
	calls []func()
	ended bool
}

func (f *failures) add(call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
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
	f.ended = true
	f.mu.Unlock()
	f.run()
}

func (c *Client) reportFailures(ctx context.Context) {
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
