package book

import (
	"math"
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// When changes are notified: to the first in a line at once, to all others at most once a second
// and some at a time, to a resource's watchers at most ten times a second.
const (
	first       = 16
	laterEvery  = 1_000_000
	publicEvery = 100_000
)

// laterNotices is the walk that notifies those after the first of their positions.
type laterNotices struct {
	at uint64 // next slice of it; 0: nobody's position has changed
	// next is the position to go on with, 0: it begins. began is when it, or else the last one,
	// did.
	next  int
	began uint64
}

// watch of a resource by nodes. It stays while the resource does, so that who ends one and begins
// another is notified no more often.
type watch struct {
	nodes    []*node
	notified public
	last     uint64
	at       uint64 // 0: they know all
}

// public is what watchers see of a resource.
type public struct {
	state            wirev1.ClaimState_State
	holder           string
	holding, waiting int
}

// unknown is no state that a resource can have.
var unknown = public{state: -1}

func (r *resource) public() public {
	st := public{state: wirev1.ClaimState_STATE_FREE, holding: len(r.holds), waiting: r.waiting()}
	if r.taken() {
		st.state = wirev1.ClaimState_STATE_HELD_BY_OTHER
	}
	if len(r.holds) > 0 {
		st.holder = r.holds[0].owner
	}
	return st
}

// push notifies the connection of a place.
func (b *Book) push(p *place, st *wirev1.ClaimState) {
	if p.node != nil {
		b.step.Pushes = append(b.step.Pushes, Push{p.node.name, &meshv1.ClaimPush{Conn: p.conn, Owner: p.owner, State: st}, len(b.step.Answers)})
	}
}

// notifyMoved notifies what follows from the step, and forgets what it left unused.
func (b *Book) notifyMoved() {
	for _, r := range b.touched {
		r.moved = false
		if r.gone {
			continue
		}
		b.notifyFirst(r)
		b.notifyWatchers(r)
		b.scheduleNotices(r)
		b.tidy(r)
	}
	clear(b.touched)
	b.touched = b.touched[:0]
}

func (b *Book) notifyFirst(r *resource) {
	shifted := r.shifted
	r.shifted = false
	if !shifted || r.tied == 0 {
		return
	}
	at := 0
	for _, a := range r.prepared {
		if a.p != nil {
			at++
			b.notifyPosition(a.p, at)
		}
	}
	if r.inLine() == 0 {
		return
	}
	for i, p := range r.line.From(1) {
		if at+i > first {
			r.later(b.now)
			return
		}
		b.notifyPosition(p, at+i)
	}
}

func (b *Book) notifyPosition(p *place, position int) {
	if p.node == nil || p.notified == uint32(position) {
		return
	}
	p.notified = uint32(position)
	b.push(p, b.queued(p, position, b.now))
}

// later has those after the first notified a second after the last time.
func (r *resource) later(now uint64) {
	if r.afterFirst == nil {
		r.afterFirst = &laterNotices{}
	}
	if r.afterFirst.at == 0 {
		r.afterFirst.at = max(now, r.afterFirst.began+laterEvery)
	}
}

// notifyLate does a part of what was put off at a resource; it returns its size.
func (b *Book) notifyLate(r *resource, now uint64, most int) (done int) {
	if r.watch != nil && r.watch.at != 0 && r.watch.at <= now {
		b.notifyWatchers(r)
		done++
	}
	if t := r.afterFirst; t != nil && t.at != 0 && t.at <= now {
		done += b.notifyAfterFirst(r, now, most)
	}
	b.scheduleNotices(r)
	return max(done, 1)
}

func (b *Book) notifyAfterFirst(r *resource, now uint64, most int) (done int) {
	t := r.afterFirst
	if t.next == 0 {
		t.next, t.began = first+1, now
	}
	ahead := r.waiting() - r.inLine() // the prepared
	t.at = 0
	if t.next-ahead <= r.inLine() && r.tied > 0 {
		for i, p := range r.line.From(max(t.next-ahead, 1)) {
			if done == most {
				t.next, t.at = i+ahead, now
				return done
			}
			b.notifyPosition(p, i+ahead)
			done++
		}
	}
	t.next = 0
	return done
}

// notifyWatchers notifies the watchers of a resource, or has them notified when the time has come.
func (b *Book) notifyWatchers(r *resource) {
	w := r.watch
	if w == nil {
		return
	}
	w.at = 0
	if len(w.nodes) == 0 {
		return
	}
	now := r.public()
	if now == w.notified {
		return
	}
	if b.now < w.last+publicEvery {
		w.at = w.last + publicEvery
		return
	}
	w.notified, w.last = now, b.now
	st := b.resourceState(r, r.name, b.now)
	for _, n := range w.nodes {
		b.step.Pushes = append(b.step.Pushes, Push{n.name, &meshv1.ClaimPush{State: st}, len(b.step.Answers)})
	}
}

func (b *Book) scheduleNotices(r *resource) {
	at := uint64(math.MaxUint64)
	if r.watch != nil && r.watch.at != 0 {
		at = r.watch.at
	}
	if r.afterFirst != nil && r.afterFirst.at != 0 {
		at = min(at, r.afterFirst.at)
	}
	if at == math.MaxUint64 {
		b.notices.drop(r)
	} else {
		b.notices.set(r, at)
	}
}

// watchBy has a node notified of a resource from now on; knows: its answer has the state. Where the
// answer has another state than watchers were notified of last, that one may come back before they
// are notified again: all are notified then. False: there are too many watches.
func (b *Book) watchBy(n *node, r *resource, knows bool) bool {
	_, is := n.watches[r]
	if !is && b.watches >= b.cfg.Watches {
		return false
	}
	if r.watch == nil {
		r.watch = &watch{}
	}
	if len(r.watch.nodes) == 0 {
		r.watch.notified = r.public()
	}
	if !is {
		n.watches[r] = struct{}{}
		r.watch.nodes = append(r.watch.nodes, n)
		b.watches++
	}
	if !is && !knows || knows && r.public() != r.watch.notified {
		r.watch.notified = unknown
	}
	return true
}

// unwatchBy ends the watch of an operation's node.
func (b *Book) unwatchBy(op *Op, r *resource) {
	for _, n := range b.nodes[op.Node] {
		if n.is(op) {
			b.unwatch(n, r)
		}
	}
}

func (b *Book) unwatch(n *node, r *resource) {
	if _, is := n.watches[r]; !is {
		return
	}
	delete(n.watches, r)
	r.watch.nodes = slices.DeleteFunc(r.watch.nodes, func(o *node) bool { return o == n })
	b.watches--
	b.moved(r)
}

// unwatchAll ends the watches of a resource.
func (b *Book) unwatchAll(r *resource) {
	if r.watch != nil {
		for _, n := range slices.Clone(r.watch.nodes) {
			b.unwatch(n, r)
		}
	}
}
