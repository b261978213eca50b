package book

import (
	"cmp"
	"fmt"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// told is what everybody outside knows: the positions of ties, and the states of resources that
// nodes watch.
type told struct {
	positions map[mTie]int
	// sure are those of positions that a tie was told since it is one.
	sure    map[mTie]bool
	watches map[mWatch]string // "": it was not told so far
	last    map[string]uint64 // public push of a resource
	// of the one resource that has so many, since when its position is another
	behind map[mTie]uint64
	token  map[string]uint64 // the greatest of a resource
	// on the way: what was so after Advance in the middle of a step.
	on map[string]bool
	// unwatched in this step, by a node of any life.
	unwatched map[mWatch]bool
	// was the state of a resource when the last step was taken.
	was map[string]string
}

type mWatch struct {
	resource string
	node     mNode
}

func newTold() *told {
	return &told{
		positions: map[mTie]int{}, sure: map[mTie]bool{}, watches: map[mWatch]string{}, last: map[string]uint64{}, behind: map[mTie]uint64{}, token: map[string]uint64{}, on: map[string]bool{}, was: map[string]string{}, unwatched: map[mWatch]bool{},
	}
}

// forget a resource, whose shard was loaded.
func (k *told) forget(r string) {
	for t := range k.positions {
		if t.resource == r {
			delete(k.positions, t)
			delete(k.sure, t)
		}
	}
	delete(k.last, r)
}

// gone nodes watch nothing.
func (k *told) gone(w *world) {
	for at := range w.m.watches {
		if w.m.nodes[at.node] == nil {
			delete(w.m.watches, at)
			at.node.incarnation = 0
			k.unwatched[at] = true
		}
	}
}

func (m *model) watched(r string) bool {
	for at := range m.watches {
		if at.resource == r {
			return true
		}
	}
	return false
}

// snap keeps what is so now.
func (k *told) snap(w *world) {
	for _, r := range w.resources {
		k.on[r+" "+w.public(r)] = true
		for i, p := range w.m.waiting(r) {
			k.on[fmt.Sprintf("%s %s %d", r, p.owner, i+1)] = true
		}
	}
}

func (w *world) public(r string) string {
	holds := w.m.holds(r)
	st := wirev1.ClaimState{State: isFree, Holding: uint32(len(holds)), Waiting: uint32(len(w.m.waiting(r)))}
	if len(holds)+len(w.m.turns[r]) > 0 {
		st.State = isHeld
	}
	if len(holds) > 0 {
		st.Holder = holds[0].owner
	}
	return readPublic(&st)
}

func readPublic(st *wirev1.ClaimState) string {
	return fmt.Sprintf("%v %q %d+%d", st.GetState(), st.GetHolder(), st.GetHolding(), st.GetWaiting())
}

// step is what was told in it, in its order.
func (k *told) step(w *world, s *Step) {
	k.snap(w)
	pushes := s.Pushes
	for i, a := range s.Answers {
		for ; len(pushes) > 0 && pushes[0].After <= i; pushes = pushes[1:] {
			k.push(w, pushes[0])
		}
		k.answer(w.ops[i], a)
	}
	for _, p := range pushes {
		k.push(w, p)
	}
	w.ops = nil
	clear(k.unwatched)
	for _, r := range w.resources {
		k.checkLine(w, r)
		k.checkWatchers(w, r)
		k.was[r] = w.public(r)
	}
	clear(k.on)
}

func (k *told) answer(op Op, a Answer) {
	t, at := mTie{op.Node, op.GetConn(), op.GetResource(), op.GetOwner()}, mWatch{op.GetResource(), mNode{op.Node, op.Incarnation}}
	delete(k.behind, t) // a tie that is new
	delete(k.sure, t)
	for known := range k.sure { // a successor's place is another one
		if known.owner == op.GetSuccessor() && known.resource == op.GetResource() {
			delete(k.sure, known)
		}
	}
	ofPlace := op.GetKind() != watch_ && op.GetKind() != unwatch // the others are of the resource
	if _, is := k.positions[t]; !is && op.GetConn() != 0 && ofPlace {
		k.positions[t] = 0 // if it waits and was not answered so, it is to be told
	}
	if st := a.State; st != nil && op.GetConn() != 0 && (st.GetState() == isQueued || st.GetState() == isGranted) {
		k.positions[t], k.sure[t] = int(a.State.GetPosition()), true
	}
	if st := a.State.GetState(); op.GetKind() == watch_ && (st == isFree || st == isHeld) {
		k.watches[at] = readPublic(a.State)
	}
}

func (k *told) push(w *world, p Push) {
	st := p.GetState()
	r := st.GetResource()
	if p.GetOwner() != "" {
		t := mTie{p.Node, p.GetConn(), r, p.GetOwner()}
		if st.GetState() == isQueued && !k.on[fmt.Sprintf("%s %s %d", r, p.GetOwner(), st.GetPosition())] {
			w.t.Fatalf("%v has no position %d", t, st.GetPosition())
		}
		if st.GetState() == isQueued && k.sure[t] && k.positions[t] == int(st.GetPosition()) {
			w.t.Fatalf("%v is told once more that it is at %d", t, st.GetPosition())
		}
		k.positions[t], k.sure[t] = int(st.GetPosition()), true
		delete(k.behind, t)
		return
	}
	if !k.on[r+" "+readPublic(st)] {
		w.t.Fatalf("watchers are told %v of %s, which is %s", st, r, w.public(r))
	}
	if last := k.last[r]; w.b.now != last && w.b.now < last+publicEvery {
		w.t.Fatalf("watchers of %s are told again after %d µs", r, w.b.now-last)
	}
	k.last[r] = w.b.now
	known := false
	for at := range w.m.watches {
		if at.resource == r && at.node.name == p.Node {
			k.watches[at], known = readPublic(st), true
		}
	}
	if !known && !k.unwatched[mWatch{resource: r, node: mNode{name: p.Node}}] {
		w.t.Fatalf("%s is told of %s and does not watch it", p.Node, r)
	}
}

// checkLine: the first know where they are, the others did so a second ago.
func (k *told) checkLine(w *world, r string) {
	was := k.behind
	k.behind = map[mTie]uint64{}
	for i, p := range w.m.waiting(r) {
		t := mTie{p.node.name, p.conn, r, p.owner}
		known, is := k.positions[t]
		if p.node.name == "" || !is || known == i+1 {
			continue
		}
		if i < first {
			w.t.Fatalf("%s is at %d of %s and knows %d", p.owner, i+1, r, known)
		}
		k.behind[t] = cmp.Or(was[t], w.m.now)
		if k.on[fmt.Sprintf("%s %s %d", r, p.owner, known)] {
			// it was right in the middle of the step
			k.behind[t] = w.m.now
		}
		if w.advanced && w.m.now >= k.behind[t]+laterEvery {
			w.t.Fatalf("%s is at %d of %s and knows %d since %d µs", p.owner, i+1, r, known, w.m.now-k.behind[t])
		}
	}
}

func (k *told) checkWatchers(w *world, r string) {
	for at := range w.m.watches {
		known := k.watches[at]
		if at.resource != r {
			continue
		}
		if known == w.public(r) {
			continue
		}
		if w.b.now >= k.last[r]+publicEvery && (w.advanced || k.was[r] != w.public(r)) {
			w.t.Fatalf("%v is told %q, not %q", at, known, w.public(r))
		}
	}
	if !w.m.watched(r) && w.public(r) == readPublic(&wirev1.ClaimState{State: isFree}) {
		delete(k.last, r)
	}
}
