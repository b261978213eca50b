package presence

import (
	"slices"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// reported is the set of members of one filter.
type reported struct {
	topics  Topics
	walk    uint64
	walking map[int]bool // loops that have not come to the end of the walk
	walked  bool         // every loop has once
	members map[uint64][]*entry
	// the same, in no order, each knows its place: for walks in steps
	all     []*entry
	changes []*meshv1.PresenceChange // not passed on yet
	watches map[*watch]struct{}
}

// entry is a member, and the walk in which it was seen last.
type entry struct {
	m    *Member
	walk uint64
	loop int
	at   int // in reported.all
}

func (r *Reporter) addFilter(topics Topics) *reported {
	f := &reported{topics: topics, members: map[uint64][]*entry{}, watches: map[*watch]struct{}{}}
	if r.filters[topics] = f; topics.Named {
		r.named++
	} else if topics.wild() {
		r.wild.Add(topics.Filter, f)
	}
	r.startWalk(f)
	return f
}

// startWalk makes every loop report all its members again: a member that no loop reports then has
// left.
func (r *Reporter) startWalk(f *reported) {
	r.walks++
	f.walk, f.walking = r.walks, make(map[int]bool, r.cfg.Loops)
	for loop := range r.cfg.Loops {
		f.walking[loop] = true
		r.commands = append(r.commands, Command{Loop: loop, Filter: f.topics.Filter, Named: f.topics.Named, Walk: f.walk})
	}
}

// Walk makes every loop report again the members of the filters for which which is true: policies
// have changed, or changes were lost.
func (r *Reporter) Walk(which func(filter string) bool) {
	for _, f := range r.filters {
		if which(f.topics.Filter) {
			r.startWalk(f)
		}
	}
}

func (r *Reporter) removeFilter(f *reported) {
	if delete(r.filters, f.topics); f.topics.Named {
		r.named--
	} else if f.topics.wild() {
		r.wild.Remove(f.topics.Filter, f)
	}
	r.members -= len(f.all)
	if f.topics.Named {
		for id := range f.members {
			r.forgetNamed(id, f)
		}
	}
	for loop := range r.cfg.Loops {
		r.commands = append(r.commands, Command{Loop: loop, Filter: f.topics.Filter, Named: f.topics.Named})
	}
}

// Changes takes in what a loop reports.
func (r *Reporter) Changes(loop int, all []Change) {
	for i := range all {
		c := &all[i]
		switch c.Kind {
		case Ended:
			r.endConnection(c.Member.GetConnectionId())
			continue
		case Missed:
			r.Walk(func(string) bool { return true })
			continue
		}
		f := r.filters[Topics{c.Filter, c.Named}]
		if f == nil {
			continue
		}
		switch c.Kind {
		case Joined:
			r.addMember(f, loop, c)
		case Left:
			r.removeMember(f, c.Member)
		case Walked:
			r.endWalk(f, loop, c.Walk)
		}
	}
}

func (r *Reporter) addMember(f *reported, loop int, c *Change) {
	id := c.Member.GetConnectionId()
	for _, e := range f.members[id] {
		if e.m.GetTopic() == c.Member.GetTopic() {
			if e.walk = max(e.walk, c.Walk); e.m.GetStateAt() < c.Member.GetStateAt() {
				e.m = c.Member
				r.queueChange(f, &meshv1.PresenceChange{Member: c.Member})
			}
			return
		}
	}
	if len(f.all) == r.cfg.MaxMembers {
		for w := range f.watches {
			r.refuse(w.watchKey, w.ask, wirev1.Code_CODE_MEMORY_BUDGET)
			delete(r.watches, w.watchKey)
		}
		r.removeFilter(f)
		return
	}
	e := &entry{m: c.Member, walk: c.Walk, loop: loop, at: len(f.all)}
	f.members[id], f.all = append(f.members[id], e), append(f.all, e)
	if f.topics.Named {
		r.noteNamed(id, f)
	}
	r.members++
	r.queueChange(f, &meshv1.PresenceChange{Member: c.Member})
}

func (r *Reporter) queueChange(f *reported, c *meshv1.PresenceChange) {
	if len(f.changes) == 0 {
		r.changed = append(r.changed, f)
	}
	f.changes = append(f.changes, c)
}

func (r *Reporter) removeMember(f *reported, m *Member) {
	for i, e := range f.members[m.GetConnectionId()] {
		if e.m.GetTopic() == m.GetTopic() {
			r.removeEntry(f, m.GetConnectionId(), i)
			return
		}
	}
}

// endConnection takes a connection out of all sets. In which named ones it is, of which there may
// be very many, is known; others are asked.
func (r *Reporter) endConnection(connection uint64) {
	in := r.inNamed[connection]
	for len(in) > 0 {
		r.removeConnection(in[len(in)-1], connection)
		in = r.inNamed[connection]
	}
	if len(r.filters) == r.named {
		return
	}
	for _, f := range r.filters {
		if !f.topics.Named {
			r.removeConnection(f, connection)
		}
	}
}

func (r *Reporter) noteNamed(connection uint64, f *reported) {
	r.inNamed[connection] = append(r.inNamed[connection], f)
}

func (r *Reporter) forgetNamed(connection uint64, f *reported) {
	in := r.inNamed[connection]
	i := slices.Index(in, f)
	last := len(in) - 1
	in[i], in[last] = in[last], nil
	if r.inNamed[connection] = in[:last]; last == 0 {
		delete(r.inNamed, connection)
	}
}

func (r *Reporter) removeConnection(f *reported, connection uint64) {
	for len(f.members[connection]) > 0 {
		r.removeEntry(f, connection, len(f.members[connection])-1)
	}
}

func (r *Reporter) removeEntry(f *reported, connection uint64, i int) {
	es := f.members[connection]
	e := es[i]
	r.queueChange(f, &meshv1.PresenceChange{Left: true, Member: &Member{Topic: e.m.GetTopic(), ConnectionId: connection}})
	es[i] = es[len(es)-1]
	es[len(es)-1] = nil
	if es = es[:len(es)-1]; len(es) == 0 {
		if delete(f.members, connection); f.topics.Named {
			r.forgetNamed(connection, f)
		}
	} else {
		f.members[connection] = es
	}
	last := len(f.all) - 1
	f.all[e.at], f.all[last].at = f.all[last], e.at
	f.all[last] = nil
	f.all = f.all[:last]
	r.members--
}

// endWalk ends a loop's walk, in steps: members that the loop did not report have left.
func (r *Reporter) endWalk(f *reported, loop int, walk uint64) {
	if walk != f.walk || !f.walking[loop] {
		return
	}
	f.walking[loop] = false // until it is looked at whom it did not report
	r.tasks = append(r.tasks, &walkEnd{f: f, loop: loop, walk: walk, left: len(f.all)})
}

// membersOfStep is how many members one step looks at, whether they have left.
const membersOfStep = 32

// walkEnd looks for members that a loop did not report in its walk. It goes from the last to the
// first: what takes the place of one that goes was looked at, or came since and was reported. A
// walk that begins meanwhile will find those that this one has not.
type walkEnd struct {
	f    *reported
	loop int
	walk uint64
	left int // to be looked at
}

func (t *walkEnd) step(r *Reporter) (done bool) {
	f := t.f
	if r.filters[f.topics] != f || f.walk != t.walk {
		return true
	}
	t.left = min(t.left, len(f.all))
	for range min(r.look, t.left) {
		if t.left = min(t.left, len(f.all)) - 1; t.left < 0 {
			break
		}
		if e := f.all[t.left]; e.loop == t.loop && e.walk < t.walk {
			id := e.m.GetConnectionId()
			r.removeEntry(f, id, slices.Index(f.members[id], e))
		}
	}
	if t.left > 0 {
		return false
	}
	delete(f.walking, t.loop)
	if f.walked = f.walked || len(f.walking) == 0; f.walked {
		for w := range f.watches {
			r.serve(w)
		}
	}
	return true
}
