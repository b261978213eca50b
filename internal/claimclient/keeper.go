package claimclient

import (
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// keeperTick is the resolution of timeouts.
	keeperTick = 100 * time.Millisecond
	// mostChecks is the most questions of the keeper under way.
	mostChecks = 2000
	// laterTicks is how long a question that failed waits.
	laterTicks = 3
)

// keeper asks stores for the current state of places, and tells them which connections are gone.
type keeper struct {
	wake chan struct{}

	mu    sync.Mutex
	dirty []*entry // to ask about, each once
	later []*entry // to ask about in a while
	out   int      // under way
}

func shardOf(st *wirev1.ClaimState) int { return topic.Shard(st.GetResource()) }

// markDirty has an entry asked about soon. Its bucket is locked.
func (c *Client) markDirty(e *entry) {
	if e.checking > 0 {
		e.again = true
		return
	}
	if e.queued {
		return
	}
	e.queued = true
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dirty = append(k.dirty, e)
	awake(k.wake)
}

// postpone has an entry asked about in a while. Its bucket is locked.
func (c *Client) postpone(e *entry) {
	if e.queued {
		return
	}
	e.queued = true
	k := &c.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	k.later = append(k.later, e)
}

// next entries to ask about, as many as the window lets.
func (k *keeper) next() []*entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(k.dirty), max(mostChecks-k.out, 0))
	out := append([]*entry(nil), k.dirty[:n]...)
	k.dirty = k.dirty[n:]
	if len(k.dirty) == 0 {
		k.dirty = nil
	}
	return out
}

func (k *keeper) count(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out += n
	if n < 0 && len(k.dirty) > 0 {
		awake(k.wake)
	}
}

func (k *keeper) nowLater() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dirty = append(k.dirty, k.later...)
	k.later = nil
}

// keep is the keeper's goroutine: it also ends operations that took too long, and links to stores
// that own no shards.
func (c *Client) keep(ctx context.Context) {
	tick := time.NewTicker(keeperTick)
	defer tick.Stop()
	changed := c.cfg.Stores.Changed()
	for ticks := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.keeper.wake:
		case <-changed:
			changed = c.cfg.Stores.Changed()
			c.ownersChanged()
		case now := <-tick.C:
			for _, l := range c.allLinks() {
				l.expire(now)
			}
			if ticks%laterTicks == 0 {
				c.keeper.nowLater()
			}
			c.sweep(ticks, now)
			ticks++
		}
		for _, e := range c.keeper.next() {
			c.ask(e)
		}
	}
}

// sweep has a part of all entries asked about, so that each has its turn once in cfg.Recheck.
func (c *Client) sweep(ticks int, now time.Time) {
	turns := max(int(c.cfg.Recheck/keeperTick), 1) // of keeperTick each
	turn := ticks % turns
	for s := turn * topic.Shards / turns; s < (turn+1)*topic.Shards/turns; s++ {
		c.eachOf(s, func(e *entry) {
			// An owner that was just notified of a grant must accept it itself: a question of the
			// keeper would accept it.
			if e.place == nil || now.Sub(e.since) > c.cfg.Recheck/3 {
				c.markDirty(e)
			}
		})
	}
}

// eachOf calls f for the entries of a shard, whose bucket is locked.
func (c *Client) eachOf(shard int, f func(*entry)) {
	b := &c.shards[shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		f(e)
	}
}

// renewed asks about all entries of a store that has a new stream: pushes in between were lost.
func (c *Client) renewed(l *link) {
	for s := range c.shards {
		c.eachOf(s, func(e *entry) {
			if e.link == l {
				c.markDirty(e)
			}
		})
	}
}

// ownersChanged asks the new owners, and ends the links that are not needed any more.
func (c *Client) ownersChanged() {
	for s := range c.shards {
		addr, _, err := c.cfg.Stores.Owner(s)
		if err != nil {
			continue
		}
		c.eachOf(s, func(e *entry) {
			if e.link != nil && e.link.addr != addr {
				c.markDirty(e)
			}
		})
	}
	for _, l := range c.allLinks() {
		if !c.cfg.Stores.Owns(l.addr) {
			l.retire()
		}
	}
}

// ask sends the questions and notices about an entry.
func (c *Client) ask(e *entry) {
	b := &c.shards[e.shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	e.queued = false
	if b.entries[e.key] != e {
		return
	}
	if e.checking > 0 {
		e.again = true
		return
	}
	if t := e.newest(); t != nil {
		m := &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_CHECK, Resource: e.resource, Owner: e.owner, Bound: t.bound}
		if e.watching > 0 {
			m.Kind = meshv1.ClaimOp_KIND_WATCH
		}
		if e.owner != "" {
			m.Conn = t.conn
		}
		c.askOf(e, t, m)
	}
	for _, t := range e.ties {
		if t.ended && t.pending == 0 {
			c.askOf(e, t, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_UNTIE, Resource: e.resource, Owner: e.owner, Conn: t.conn})
		}
	}
}

func (c *Client) askOf(e *entry, t *tie, m *meshv1.ClaimOp) {
	t.pending++
	e.checking++
	c.keeper.count(1)
	o := &op{client: c, m: m, shard: e.shard, began: time.Now(), tie: t, check: e}
	if failed := c.send(o); failed != nil {
		c.refuse(o, failed)
	}
}

// checked takes the result of a question. The bucket is locked.
func (c *Client) checked(e *entry, r *meshv1.ClaimResult) {
	c.keeper.count(-1)
	e.checking--
	switch {
	case mayHelp(r):
		e.again = false
		c.postpone(e)
	case r.GetCode() != wirev1.Code_CODE_OK:
		e.unsure = false
		c.cfg.Log.Warn("a store refused to report the state of a claim", "resource", e.resource, "code", code.Name(r.GetCode()), "error", r.GetError())
	}
	if e.checking == 0 && e.again {
		e.again = false
		c.markDirty(e)
	}
}
