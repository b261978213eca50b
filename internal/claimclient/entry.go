package claimclient

import (
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// key of an entry. Without an owner the entry has the connections that watch the resource only.
type key struct{ resource, owner string }

// bucket has the entries of one shard. Its lock is taken before all others of the client.
type bucket struct {
	mu      sync.Mutex
	entries map[key]*entry
	watched map[string]map[*entry]struct{} // by resource: entries with a tie that watches
}

// entry is an owner's place at a resource, as last sent to connections of this node.
type entry struct {
	key
	shard int
	ties  []*tie // the newest last
	// place was sent last: GRANTED or QUEUED; nil: there is none. public is the resource's state
	// that was sent last while there is no place.
	place, public *wirev1.ClaimState
	since         time.Time // when place was set
	unsure        bool      // an operation was sent whose outcome is unknown, so place may be wrong
	link          *link     // the link that a tie was sent over last
	watching      int       // number of ties that watch
	queued        bool      // the keeper will ask about it
	checking      int       // operations of the keeper under way
	again         bool      // ask once more when these have ended
}

// tie is a connection that is notified about an entry.
type tie struct {
	conn    uint64
	bound   bool
	watch   bool
	ended   bool // the connection is gone, and the store may not know
	asking  bool // none of its operations has an answer yet: that is what it is told first
	owed    bool // what came of that is not known: it is told the place that is found, new or not
	pending int  // operations under way
	// missed came last while it was asking; it is told that where the first answer says nothing.
	missed *wirev1.ClaimState
}

func (e *entry) find(conn uint64) *tie {
	for _, t := range e.ties {
		if t.conn == conn {
			return t
		}
	}
	return nil
}

// newest is the newest tie whose connection has not ended.
func (e *entry) newest() *tie {
	for _, t := range slices.Backward(e.ties) {
		if !t.ended {
			return t
		}
	}
	return nil
}

// register makes an operation's connection the newest of its entry; false: there are too many. The
// bucket is locked.
func (c *Client) register(b *bucket, o *op) bool {
	k := key{o.m.GetResource(), o.m.GetOwner()}
	e := b.entries[k]
	var t *tie
	if e != nil {
		t = e.find(o.m.GetConn())
	}
	if t == nil {
		if c.ties.Add(1) > int64(c.cfg.MaxTies) {
			c.ties.Add(-1)
			return false
		}
		if e == nil {
			e = b.add(k, o.shard)
		}
		t = &tie{conn: o.m.GetConn(), asking: true}
		o.first = true
		c.conns.add(t.conn, e)
	} else {
		e.ties = slices.DeleteFunc(e.ties, func(other *tie) bool { return other == t })
	}
	e.ties = append(e.ties, t)
	t.bound = o.m.GetBound()
	t.pending++
	o.tie = t
	if o.m.GetKind() == meshv1.ClaimOp_KIND_WATCH && !t.watch {
		t.watch, o.watches = true, true
		b.watch(e)
	}
	return true
}

func (b *bucket) add(k key, shard int) *entry {
	if b.entries == nil {
		b.entries, b.watched = map[key]*entry{}, map[string]map[*entry]struct{}{}
	}
	e := &entry{key: k, shard: shard}
	b.entries[k] = e
	return e
}

func (b *bucket) watch(e *entry) {
	e.watching++
	if b.watched[e.resource] == nil {
		b.watched[e.resource] = map[*entry]struct{}{}
	}
	b.watched[e.resource][e] = struct{}{}
}

// unwatch ends what a tie watches. The store is told when the last of the resource ends. The bucket
// is locked.
func (c *Client) unwatch(b *bucket, e *entry, t *tie) {
	if !t.watch {
		return
	}
	t.watch = false
	if e.watching--; e.watching > 0 {
		return
	}
	e.public = nil
	delete(b.watched[e.resource], e)
	if len(b.watched[e.resource]) == 0 {
		delete(b.watched, e.resource)
		c.mention(e.shard, &meshv1.ClaimOp{Kind: meshv1.ClaimOp_KIND_UNWATCH, Resource: e.resource})
	}
}

// mention sends what nobody waits for: where it is lost, the next push for nobody has it sent
// again. The bucket is locked.
func (c *Client) mention(shard int, m *meshv1.ClaimOp) {
	o := &op{client: c, m: m, shard: shard, began: time.Now()}
	if failed := c.send(o); failed != nil {
		o.ended.Store(true)
	}
}

// tidy forgets ties that are told nothing any more, and the entry with the last of them. The bucket
// is locked.
func (c *Client) tidy(b *bucket, e *entry) {
	placed := e.place != nil || e.unsure
	gone := false
	e.ties = slices.DeleteFunc(e.ties, func(t *tie) bool {
		if t.pending > 0 || placed || t.watch {
			gone = gone || t.ended && t.pending == 0
			return false
		}
		c.forget(e, t)
		return true
	})
	switch {
	case len(e.ties) == 0 && e.checking == 0:
		delete(b.entries, e.key)
	case gone:
		c.markDirty(e)
	}
}

func (c *Client) forget(e *entry, t *tie) {
	c.ties.Add(-1)
	if !t.ended {
		c.conns.remove(t.conn, e)
	}
}

// connIndex finds the entries of a connection.
type connIndex [64]struct {
	mu      sync.Mutex
	entries map[uint64][]*entry
}

func (x *connIndex) init() {
	for i := range x {
		x[i].entries = map[uint64][]*entry{}
	}
}

func (x *connIndex) add(conn uint64, e *entry) {
	s := &x[conn%uint64(len(x))]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[conn] = append(s.entries[conn], e)
}

func (x *connIndex) remove(conn uint64, e *entry) {
	s := &x[conn%uint64(len(x))]
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.entries[conn], func(other *entry) bool { return other == e })
	if len(left) == 0 {
		delete(s.entries, conn)
		return
	}
	s.entries[conn] = left
}

// take ends a connection.
func (x *connIndex) take(conn uint64) []*entry {
	s := &x[conn%uint64(len(x))]
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.entries[conn]
	delete(s.entries, conn)
	return all
}
