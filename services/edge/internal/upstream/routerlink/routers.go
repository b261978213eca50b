// Package routerlink knows which routers are alive and whether everything they sent has come. It
// does no I/O: frames and the time are put in, and what follows from them comes out.
package routerlink

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/internal/incarnation"
)

// SilentAfter is how long a router may send nothing before it counts as gone.
const SilentAfter = 2 * time.Second

// Reason why deliveries may have been missed; "" says that none were.
type Reason string

// Reasons to compare heads with the store.
const (
	Hole        Reason = "hole"
	Incarnation Reason = "incarnation"
	Silent      Reason = "silent"
	// Learned says that a router did not know all of the edge's interest, and does now: it may have
	// routed past the edge.
	Learned Reason = "learned"
)

// Verdict about a frame.
type Verdict struct {
	// Foreign frames are meant for another incarnation of this edge, or come from an earlier one of
	// the router: drop them.
	Foreign bool
	// Repeated deliveries came before, or so late that others came before them: drop those, the
	// rest of the frame counts.
	Repeated bool
	// Missed says why deliveries may have been missed.
	Missed Reason
	// Applied says that the router is new, or has applied more than before.
	Applied bool
}

type router struct {
	incarnation uint64
	n           uint64
	broadcast   uint64 // the last
	applied     uint64
	missing     uint64 // version that it must apply to know what it should; 0: it does
	events      events.Mask
	seen        time.Time
}

// Set of live routers. It is not safe for concurrent use.
type Set struct {
	edgeIncarnation uint64
	live            map[string]*router
	// past are the processes that are over: what they say late counts for nothing.
	past incarnation.Memory
	// left are the ids of routers that said goodbye or fell silent, so that their return is told
	// from a first appearance. Bounded by maxLeft.
	left map[string]struct{}
}

// maxLeft bounds the memory of routers that are gone; beyond it all are forgotten, which costs a
// comparison of heads at most.
const maxLeft = 1024

// New makes a set for an edge of this incarnation.
func New(edgeIncarnation uint64) *Set {
	return &Set{edgeIncarnation: edgeIncarnation, live: map[string]*router{}, left: map[string]struct{}{}}
}

// Take notes a frame. version is that of the edge's interest now.
func (s *Set) Take(now time.Time, f *Frame, version uint64) Verdict {
	if f.EdgeIncarnation != s.edgeIncarnation {
		return Verdict{Foreign: true}
	}
	var v Verdict
	r := s.live[string(f.Router)]
	if s.late(now, r, f) {
		return Verdict{Foreign: true}
	}
	switch {
	case r == nil:
		if _, known := s.left[string(f.Router)]; known {
			v.Missed = Incarnation // it was away: what it sent meanwhile may be lost
			delete(s.left, string(f.Router))
		}
		// What it broadcast before its first frame for this edge was not meant for it: nothing that
		// the edge announced had been applied, or coming to know it is a reason to compare.
		r = &router{incarnation: f.Incarnation, missing: version, broadcast: f.LastBroadcast}
		if v.Missed != "" {
			r.n = f.N
		}
		s.live[string(f.Router)] = r
		v.Applied = true
	case f.Incarnation != r.incarnation:
		s.past.Replaced(now, string(f.Router), r.incarnation)
		*r = router{incarnation: f.Incarnation, n: f.N, missing: version, broadcast: f.LastBroadcast}
		v.Missed, v.Applied = Incarnation, true
	case now.Sub(r.seen) >= SilentAfter:
		v.Missed, r.n, r.broadcast = Silent, f.N, f.LastBroadcast // noticed now, not by Expire
	}
	r.seen = now
	if f.Events != 0 {
		r.events = f.Events
	}
	before := r.applied
	if v.Missed == "" {
		v.Missed, v.Repeated = r.number(f)
	}
	learned := r.apply(f.Applied, version)
	if v.Missed == "" && learned {
		v.Missed = Learned
	}
	v.Applied = v.Applied || f.Applied > before
	if f.Leaving {
		s.past.Departed(now, string(f.Router), f.Incarnation)
		s.drop(string(f.Router))
		v.Applied = true
	}
	return v
}

// late reports whether a frame is of a process of the router that is over. r is the one that lives;
// nil: none.
func (s *Set) late(now time.Time, r *router, f *Frame) bool {
	if r != nil && r.incarnation == f.Incarnation {
		return false
	}
	alone := r == nil || now.Sub(r.seen) >= SilentAfter
	return s.past.Late(now, string(f.Router), f.Incarnation, alone, SilentAfter)
}

// number compares the frame's n with the batches that came, and the broadcasts with the last before
// it. A lower n says that the router dropped this edge and took it up again. The connection keeps
// the order of frames and broadcasts, so what is not in order is not in time either.
func (r *router) number(f *Frame) (missed Reason, repeated bool) {
	expected, batch := r.n, len(f.Deliveries) > 0 || len(f.CheckTopics) > 0
	if batch {
		expected++
	}
	if f.N != expected {
		missed, repeated = Hole, batch && f.N == r.n
	}
	r.n = f.N
	switch {
	case f.LastBroadcast > r.broadcast:
		missed, r.broadcast = Hole, f.LastBroadcast
	case f.LastBroadcast < r.broadcast:
		missed, repeated = Hole, true
	}
	return missed, repeated
}

// Broadcast notes a frame for every edge. It is no sign that the router knows this one: only frames
// for it say that the router is alive.
func (s *Set) Broadcast(now time.Time, f *Frame) Verdict {
	r := s.live[string(f.Router)]
	switch {
	case s.late(now, r, f):
		return Verdict{Foreign: true}
	case r == nil:
		return Verdict{}
	case f.Incarnation != r.incarnation: // its first frame for this edge tells the rest
		return Verdict{}
	case f.Broadcast <= r.broadcast:
		return Verdict{Repeated: true}
	}
	var v Verdict
	if f.Broadcast != r.broadcast+1 {
		v.Missed = Hole
	}
	r.broadcast = f.Broadcast
	return v
}

// apply notes what the router knows, and reports whether it has just come to know all that it
// should.
func (r *router) apply(applied, version uint64) (learned bool) {
	if applied < r.applied { // it forgot this edge, and learns its interest anew
		r.missing = version
	}
	r.applied = applied
	if r.missing == 0 || applied < r.missing {
		return false
	}
	r.missing = 0
	return true
}

// Doubt has every live router say anew that it knows version: what the edge announced may not have
// come.
func (s *Set) Doubt(version uint64) {
	for _, r := range s.live {
		r.missing = version
	}
}

// Expire drops the routers that have been silent too long, and says how many.
func (s *Set) Expire(now time.Time) int {
	n := 0
	for id, r := range s.live {
		if now.Sub(r.seen) >= SilentAfter {
			s.past.Quiet(now, id, r.incarnation)
			s.drop(id)
			n++
		}
	}
	return n
}

// NextSilent is when Expire drops the first of them, unless it is heard before; false where none is
// alive.
func (s *Set) NextSilent() (at time.Time, ok bool) {
	for _, r := range s.live {
		if due := r.seen.Add(SilentAfter); !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	return at, ok
}

func (s *Set) drop(id string) {
	if len(s.left) >= maxLeft {
		clear(s.left)
	}
	s.left[id] = struct{}{}
	delete(s.live, id)
}

// Len is the number of live routers.
func (s *Set) Len() int { return len(s.live) }

// Applied is the version that every live router has applied; any is false where there is no live
// router.
func (s *Set) Applied() (version uint64, any bool) {
	version = ^uint64(0)
	for _, r := range s.live {
		version = min(version, r.applied)
	}
	return version, len(s.live) > 0
}

// Events are the kinds that any live router knows to be wanted; told is false where none says.
func (s *Set) Events() (kinds events.Mask, told bool) {
	for _, r := range s.live {
		kinds |= r.events
	}
	return kinds &^ events.MaskSet, kinds&events.MaskSet != 0
}

// Laggards counts the live routers that have not applied version.
func (s *Set) Laggards(version uint64) int {
	n := 0
	for _, r := range s.live {
		if r.applied < version {
			n++
		}
	}
	return n
}

// Live is one life of a router.
type Live struct {
	ID          string
	Incarnation uint64
}

// Live routers, in no order.
func (s *Set) Live() []Live {
	all := make([]Live, 0, len(s.live))
	for id, r := range s.live {
		all = append(all, Live{id, r.incarnation})
	}
	return all
}

// Pick chooses one of ids for key: the same one for as long as it is among them (rendezvous
// hashing). "" of none.
func Pick(ids []string, key uint64) string {
	i := pick(len(ids), func(i int) string { return ids[i] }, key)
	if i < 0 {
		return ""
	}
	return ids[i]
}

// PickLive is Pick of routers that are alive, by their ids; ok is false where none is.
func PickLive(all []Live, key uint64) (r Live, ok bool) {
	i := pick(len(all), func(i int) string { return all[i].ID }, key)
	if i < 0 {
		return r, false
	}
	return all[i], true
}

// pick is the index of the choice among n; -1 of none.
func pick(n int, id func(int) string, key uint64) int {
	best, high := -1, uint64(0)
	for i := range n {
		if h := mix(xxhash.Sum64String(id(i)) ^ key); best < 0 || h > high || h == high && id(i) < id(best) {
			best, high = i, h
		}
	}
	return best
}

// mix is the finalizer of MurmurHash3: without it, close keys would choose alike.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
