package room

import (
	"bytes"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// View is what an edge knows of a topic's users, which is what its clients were told. Its callers
// serialise its calls.
type View struct {
	topic        string
	run, version uint64
	known        bool
	members      map[string][]byte // states by user
	count        uint64
	countsOnly   bool
	bytes        int // that members take
}

// memberBytes is about what a member takes beside its name and state.
const memberBytes = 96

// Bytes is about how much memory the view takes.
func (v *View) Bytes() int { return v.bytes }

// NewView makes a view that knows nothing.
func NewView(topic string) *View { return &View{topic: topic, members: map[string][]byte{}} }

// Version that it has; 0: it knows nothing.
func (v *View) Version() (run, version uint64) { return v.run, v.version }

// Known reports whether there is something to tell.
func (v *View) Known() bool { return v.known }

// Apply takes in an update, and returns what clients are to be told, nil where that is nothing. ok
// is false where the update changes a version that the view does not have.
func (v *View) Apply(u *meshv1.RoomUpdate) (told *wirev1.Presence, ok bool) {
	switch {
	case u.GetRun() == v.run && u.GetVersion() <= v.version && v.known:
		return nil, true // doubled, or late
	case u.GetFrom() == 0:
		told = v.replace(u)
	case u.GetRun() != v.run || u.GetFrom() != v.version || !v.known:
		return nil, false
	case u.GetCountsOnly():
		told = v.counts(u)
	default:
		told = v.change(u)
	}
	v.run, v.version, v.known = u.GetRun(), u.GetVersion(), true
	return told, true
}

// replace takes in a snapshot.
func (v *View) replace(u *meshv1.RoomUpdate) *wirev1.Presence {
	if u.GetCountsOnly() {
		return v.counts(u)
	}
	was := v.members
	v.bytes = 0
	v.members = make(map[string][]byte, len(u.GetMembers()))
	change := &wirev1.Presence{Topic: v.topic, Count: u.GetCount()}
	for _, m := range u.GetMembers() {
		state, had := was[m.GetUser()]
		v.put(m)
		if !had || !bytes.Equal(state, m.GetState()) {
			change.Members = append(change.Members, publicMember(m))
		}
	}
	for name := range was {
		if _, has := v.members[name]; !has {
			change.Left = append(change.Left, name)
		}
	}
	named := v.known && !v.countsOnly
	v.count, v.countsOnly = u.GetCount(), false
	switch {
	case !named:
		return v.Snapshot()
	case len(change.GetMembers())+len(change.GetLeft()) == 0:
		return nil
	}
	return change
}

// counts takes in a count.
func (v *View) counts(u *meshv1.RoomUpdate) *wirev1.Presence {
	same := v.known && v.countsOnly && v.count == u.GetCount()
	if v.count, v.countsOnly = u.GetCount(), true; same {
		return nil
	}
	clear(v.members)
	v.bytes = 0
	return v.Snapshot()
}

// change takes in what has changed.
func (v *View) change(u *meshv1.RoomUpdate) *wirev1.Presence {
	told := &wirev1.Presence{Topic: v.topic, Count: u.GetCount(), Left: u.GetLeft()}
	for _, name := range u.GetLeft() {
		v.drop(name)
	}
	for _, m := range u.GetMembers() {
		v.put(m)
		told.Members = append(told.Members, publicMember(m))
	}
	v.count = u.GetCount()
	return told
}

// put has a member be there, with a state.
func (v *View) put(m *meshv1.RoomUpdate_Member) {
	v.drop(m.GetUser())
	v.members[m.GetUser()] = m.GetState()
	v.bytes += memberBytes + len(m.GetUser()) + len(m.GetState())
}

func (v *View) drop(user string) {
	if state, had := v.members[user]; had {
		v.bytes -= memberBytes + len(user) + len(state)
		delete(v.members, user)
	}
}

// Snapshot is all that is known, for who was told nothing. It is nobody else's.
func (v *View) Snapshot() *wirev1.Presence {
	told := &wirev1.Presence{Topic: v.topic, Snapshot: true, Count: v.count, CountsOnly: v.countsOnly}
	for name, state := range v.members {
		told.Members = append(told.Members, &wirev1.Presence_Member{User: name, State: state})
	}
	return told
}

func publicMember(m *meshv1.RoomUpdate_Member) *wirev1.Presence_Member {
	return &wirev1.Presence_Member{User: m.GetUser(), State: m.GetState()}
}
