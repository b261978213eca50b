package book

import "slices"

// node is an edge or a router in one of its lives.
type node struct {
	name        string
	incarnation uint64
	// up: it has a stream. Otherwise it is gone when its timer wakes it.
	up      bool
	ties    []*place
	watches map[*resource]struct{}
	timerAt int32
}

func (n *node) timer() *int32 { return &n.timerAt }

// is reports whether an operation comes from it.
func (n *node) is(op *Op) bool {
	return n.name == op.Node && n.incarnation == op.Incarnation
}

func (b *Book) node(name string, incarnation uint64) *node {
	for _, n := range b.nodes[name] {
		if n.incarnation == incarnation {
			return n
		}
	}
	n := &node{name: name, incarnation: incarnation, watches: map[*resource]struct{}{}}
	b.nodes[name] = append(b.nodes[name], n)
	b.leaves.set(n, b.goneAt(n))
	return n
}

// goneAt is when a node without a stream is gone: at once where another process of its name has
// one.
func (b *Book) goneAt(n *node) uint64 {
	for _, other := range b.nodes[n.name] {
		if other.up && other != n {
			return b.now
		}
	}
	return later(b.now, b.cfg.NodeGone)
}

// NodeUp notes that a node has a stream. The ties of its other lives are cut: who calls keeps
// streams of earlier ones away.
func (b *Book) NodeUp(now uint64, name string, incarnation uint64) {
	b.now = now
	up := b.node(name, incarnation)
	for _, n := range b.nodes[name] {
		if n != up {
			n.up = false
			b.leaves.set(n, now)
		}
	}
	up.up = true
	b.leaves.drop(up)
}

// NodeDown says that a node has no stream any more. It is gone after NodeGone, unless it comes
// again before.
func (b *Book) NodeDown(now uint64, name string) {
	b.now = now
	for _, n := range b.nodes[name] {
		if n.up {
			n.up = false
			b.leaves.set(n, b.goneAt(n))
		}
	}
}

// leave cuts ties of a node that is gone, at most so many, and returns how many. The last one ends
// the node.
func (b *Book) leave(n *node, now uint64, most int) int {
	done := 0
	for ; len(n.ties) > 0 && done < most; done++ {
		b.untie(n.ties[len(n.ties)-1], now)
	}
	if len(n.ties) > 0 {
		return done
	}
	for r := range n.watches {
		b.unwatch(n, r)
	}
	b.leaves.drop(n)
	all := b.nodes[n.name]
	if all = slices.DeleteFunc(all, func(o *node) bool { return o == n }); len(all) == 0 {
		delete(b.nodes, n.name)
	} else {
		b.nodes[n.name] = all
	}
	return done + 1
}

// tie has notices of a place sent to where an operation comes from.
func (b *Book) tie(p *place, op *Op) {
	if p.node != nil && p.node.is(op) && p.conn == op.GetConn() && p.bound == op.GetBound() {
		return
	}
	b.cut(p)
	b.bind(p, b.node(op.Node, op.Incarnation), op.GetConn(), op.GetBound())
	b.changed(p)
}

func (b *Book) bind(p *place, n *node, conn uint64, bound bool) {
	p.node, p.conn, p.bound, p.gone, p.notified = n, conn, bound, 0, 0
	p.tieAt = int32(len(n.ties))
	n.ties = append(n.ties, p)
	if !p.holds() {
		p.r.tied++
	}
}

// cut takes a place's tie away, if it has one. What follows from it is the caller's.
func (b *Book) cut(p *place) {
	n := p.node
	if n == nil {
		return
	}
	last := len(n.ties) - 1
	end := n.ties[last]
	n.ties[p.tieAt], end.tieAt = end, p.tieAt
	n.ties[last] = nil
	n.ties = n.ties[:last]
	p.node, p.conn, p.bound = nil, 0, false
	if !p.holds() && !p.ended {
		p.r.tied--
	}
}

// untie notes that the connection that notices of a place went to is gone. A subscriber has the
// policy's grace then, who polls and waits wait_ttl.
func (b *Book) untie(p *place, now uint64) {
	bound := p.bound
	b.cut(p)
	p.heard = now
	if bound {
		p.gone = now
	}
	p.r.rules = b.cfg.Rules(p.r.name)
	b.arm(p)
	b.changed(p)
}
