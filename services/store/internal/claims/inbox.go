package claims

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book"
)

const (
	// turnOps operations of a node are taken before it is the next one's turn.
	turnOps = 64
	// mostParked operations wait for their shard to be read.
	mostParked = 20_000
)

// prepared is what became of a call.
type prepared struct {
	running any // with which writer
	key     backend.ClaimKey
	token   uint64
	ok      bool
}

// node is where one is now.
type node struct {
	name        string
	incarnation uint64
	here        bool
}

// batch is what came since the last.
type batch struct {
	ops      []*op
	nodes    []node
	prepared []prepared
	lists    []*listing
	more     bool // there is more
}

// gather takes what came, of operations as many as go into one step, every node in turn.
func (l *Lane) gather() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &batch{prepared: l.prepared, lists: l.lists}
	l.prepared, l.lists = nil, nil
	for name := range l.changed {
		s := l.nodes[name]
		n := node{name: name, here: s != nil}
		if n.here {
			n.incarnation = s.incarnation
		}
		b.nodes = append(b.nodes, n)
	}
	clear(l.changed)
	for len(l.turns) > 0 && len(b.ops) < stepOps {
		s := l.turns[0]
		l.turns = l.turns[1:]
		n := min(len(s.queue), turnOps, stepOps-len(b.ops))
		b.ops = append(b.ops, s.queue[:n]...)
		if s.queue = s.queue[n:]; len(s.queue) > 0 {
			l.turns = append(l.turns, s)
		} else {
			s.queue, s.waits = nil, false
		}
	}
	b.more = len(l.turns) > 0
	return b
}

// queued takes all operations out of the queues.
func (l *Lane) queued() (ops []*op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.turns {
		ops = append(ops, s.queue...)
		s.queue, s.waits = nil, false
	}
	l.turns = nil
	return ops
}

// endStreams has every node ask again for all that it notifies somebody of.
func (l *Lane) endStreams() {
	l.mu.Lock()
	ended := make([]*stream, 0, len(l.nodes))
	for name, s := range l.nodes {
		delete(l.nodes, name)
		l.past.Quiet(time.Now(), name, s.incarnation)
		l.changed[name] = struct{}{}
		s.over.Store(true)
		ended = append(ended, s)
	}
	l.mu.Unlock()
	l.refuse(l.queued(), errAnew) // none of them gets any more
	for _, s := range ended {
		s.end(errAnew)
	}
}

// refuseAll answers what waits while nothing can be done.
func (l *Lane) refuseAll() {
	l.refuse(l.queued(), errAway)
	l.mu.Lock()
	b := &batch{lists: l.lists}
	l.lists = nil
	l.mu.Unlock()
	b.fail()
}

// refuse answers operations.
func (l *Lane) refuse(ops []*op, why *code.Error) {
	for _, o := range ops {
		o.from.put([]word{l.refusal(o.ClaimOp, why)}, 1)
	}
}

// apply has the book do operations on the shards that it has.
func (l *Lane) apply(now uint64, ops []*op) {
	if l.shards.news {
		l.shards.news = false
		parked := l.parked
		l.parked = nil
		for _, o := range parked {
			l.do(now, o)
		}
	}
	for _, o := range ops {
		l.do(now, o)
	}
}

// do has the book do one operation. A shard that will be read soon is waited for.
func (l *Lane) do(now uint64, o *op) {
	why := l.cfg.Policies().Refuses(o.GetResource())
	switch {
	case o.from.over.Load():
		l.refuse([]*op{o}, errAnew)
	case why != nil:
		l.refuse([]*op{o}, why)
	case l.shards.taken[o.shard] != 0:
		l.book.Apply(now, book.Op{Node: o.from.node, Incarnation: o.from.incarnation, ClaimOp: o.ClaimOp, Ref: o})
	case l.cfg.Own(o.shard) == 0:
		l.refuse([]*op{o}, errNotMine)
	case len(l.parked) >= mostParked || time.Since(o.at) > patience:
		l.refuse([]*op{o}, errLoading)
	default:
		l.parked = append(l.parked, o)
	}
}
