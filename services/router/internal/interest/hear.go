package interest

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// Meet takes note of an edge that is about to be heard. Whoever looks topics up beside that calls
// it first, and does what Joined asks for before the edge can be found.
func (t *Table) Meet(now time.Time, id string, incarnation uint64) { t.meet(now, id, incarnation) }

// meet finds the edge that speaks; nil where it is one that was replaced or took its leave.
func (t *Table) meet(now time.Time, id string, incarnation uint64) *edge {
	e := t.edges[id]
	if e != nil && e.Incarnation == incarnation {
		e.heard = now
		return e
	}
	if t.formerProcesses.Late(now, id, incarnation, e == nil || now.Sub(e.heard) >= SilentAfter, SilentAfter) {
		return nil
	}
	if e != nil {
		t.formerProcesses.Replaced(now, id, e.Incarnation)
		t.drop(e, true)
	}
	if t.edges == nil {
		t.edges = map[string]*edge{}
	}
	e = &edge{Peer: &Peer{Edge: Edge{ID: id, Incarnation: incarnation}}, heard: now}
	t.edges[id] = e
	t.events = append(t.events, Event{Kind: Joined, Peer: e.Peer})
	return e
}

func (t *Table) drop(e *edge, lost bool) {
	t.discard(e)
	if e.active != nil {
		t.live.replace(e.active.slot, 0, nil)
		t.retire(e.active)
		e.active = nil
	}
	delete(t.edges, e.ID)
	t.expect(e, 0)
	t.events = append(t.events, Event{Kind: Left, Peer: e.Peer, Lost: lost, Connections: e.connections})
}

// expect that e has so many topics and filters.
func (t *Table) expect(e *edge, count uint64) {
	if count != e.count {
		t.expected += count - e.count
		e.count = count
		t.topics.expect(int(min(t.expected, maxExpected)))
	}
}

// discard throws away a snapshot that is on its way.
func (t *Table) discard(e *edge) {
	if e.staging != nil {
		t.retire(e.staging.view)
		e.staging = nil
	}
}

// begin makes a view live as the edge's present one.
func (t *Table) begin(e *edge, v *view) {
	old := e.active
	e.active = v
	if old == nil {
		t.live.replace(0, v.slot, e.Peer)
		return
	}
	t.live.replace(old.slot, v.slot, e.Peer)
	t.retire(old)
}

// Announce takes in a change. Versions are strict: a gap asks for a snapshot.
func (t *Table) Announce(now time.Time, a *meshv1.EdgeAnnounce) {
	e := t.meet(now, a.GetEdgeId(), a.GetEdgeIncarnation())
	if e == nil || a.GetVersion() == 0 {
		return
	}
	if e.active == nil && a.GetVersion() == 1 {
		// the first word of this life: before it there was nothing
		if v := t.newView(0); v != nil {
			t.begin(e, v)
		}
	}
	if v := e.active; v != nil && !e.want && len(e.pending) == 0 && a.GetVersion() == v.version+1 {
		// as nearly always
		t.apply(v, a)
		t.answer(e)
		return
	}
	if e.active == nil || a.GetVersion() > e.active.version {
		e.hold(a)
	}
	t.advance(now, e)
}

func (e *edge) hold(a *meshv1.EdgeAnnounce) {
	if e.pending[a.GetVersion()] != nil {
		return
	}
	size := len(a.GetAdd()) + len(a.GetRemove())
	if len(e.pending) >= maxPending || e.pendingFilters+size > maxPendingFilters {
		// the gap that this makes asks for a snapshot
		e.pending, e.pendingFilters, e.highest = nil, 0, 0
	}
	if e.pending == nil {
		e.pending = map[uint64]*meshv1.EdgeAnnounce{}
	}
	e.pending[a.GetVersion()] = a
	e.pendingFilters += size
	e.highest = max(e.highest, a.GetVersion())
}

// advance applies what can be applied, asks for a snapshot where something is missing, and answers.
func (t *Table) advance(now time.Time, e *edge) {
	missing := e.active == nil
	if !missing {
		t.catchUp(e, e.active)
		missing = e.highest > e.active.version
	}
	e.trim()
	t.answer(e)
	if missing {
		t.ask(now, e)
	}
}

// catchUp applies pending announcements that follow v without a gap.
func (t *Table) catchUp(e *edge, v *view) {
	for a := e.pending[v.version+1]; a != nil; a = e.pending[v.version+1] {
		t.apply(v, a)
	}
}

// trim forgets announcements that nothing on its way may still need.
func (e *edge) trim() {
	var done uint64 // every version up to here is in whatever may be used
	switch {
	case e.staging != nil:
		done = e.staging.view.version
	case !e.want && e.active != nil:
		done = e.active.version
	}
	if done <= e.trimmed || len(e.pending) == 0 {
		return
	}
	e.trimmed = done
	for version, a := range e.pending {
		if version <= done {
			delete(e.pending, version)
			e.pendingFilters -= len(a.GetAdd()) + len(a.GetRemove())
		}
	}
}

// Digest compares what the edge holds with the table.
func (t *Table) Digest(now time.Time, d *meshv1.EdgeDigest) {
	if d.GetLeaving() {
		t.leave(now, d)
		return
	}
	e := t.meet(now, d.GetEdgeId(), d.GetEdgeIncarnation())
	if e == nil {
		return
	}
	e.connections, e.draining = d.GetConnections(), d.GetDraining()
	t.expect(e, d.GetCount())
	if e.active == nil && d.GetCount() == 0 {
		if v := t.newView(d.GetVersion()); v != nil {
			t.begin(e, v)
			t.advance(now, e)
		}
	}
	switch v := e.active; {
	case v == nil:
		t.ask(now, e)
	case d.GetVersion() > v.version:
		if e.digestVersion <= v.version {
			e.digestVersion, e.digestAt = d.GetVersion(), now
		}
	case d.GetVersion() < v.version: // overtaken by an announcement
	case d.GetCount() != v.count || d.GetHash() != v.hash:
		t.ask(now, e)
	default:
		e.want = false
		t.discard(e)
		e.trim()
	}
}

// leave drops an edge that says goodbye. Another process of its id, which began before or after it,
// is another matter.
func (t *Table) leave(now time.Time, d *meshv1.EdgeDigest) {
	if e := t.edges[d.GetEdgeId()]; e != nil && e.Incarnation == d.GetEdgeIncarnation() {
		t.drop(e, false)
	}
	t.formerProcesses.Departed(now, d.GetEdgeId(), d.GetEdgeIncarnation())
}

// Snapshot takes in one part of an edge's whole interest. Only one that was asked for counts:
// another's versions say nothing about what is pending.
func (t *Table) Snapshot(now time.Time, s *meshv1.EdgeSnapshot) {
	e := t.meet(now, s.GetEdgeId(), s.GetEdgeIncarnation())
	if e == nil || !e.want || s.GetPart() >= s.GetParts() || s.GetParts() > maxSnapshotParts {
		return
	}
	if s.GetPart() == 0 {
		t.discard(e)
		v := t.newView(s.GetVersion())
		if v == nil {
			return
		}
		e.staging = &staging{view: v, parts: s.GetParts()}
		e.trim()
	}
	st := e.staging
	if st == nil || s.GetVersion() != st.view.version || s.GetParts() != st.parts || s.GetPart() < st.next {
		return // of another snapshot, or doubled
	}
	if s.GetPart() > st.next {
		t.discard(e) // one got lost: this one can't be completed
		return
	}
	st.next++
	e.asked = now
	t.addAll(st.view, s.GetFilters())
	if st.next == st.parts {
		t.complete(now, e)
	}
}

// complete puts the snapshot in the place of the present view, unless that is newer and what lies
// between is unknown.
func (t *Table) complete(now time.Time, e *edge) {
	v := e.staging.view
	t.catchUp(e, v)
	if e.active != nil && v.version < e.active.version {
		t.discard(e)
		return
	}
	e.staging, e.want = nil, false
	t.begin(e, v)
	t.advance(now, e)
	t.askNext(now)
}
