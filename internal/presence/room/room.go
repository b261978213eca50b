// Package room makes of the members of a topic, which are connections, what clients see of it:
// which users are there, gathered over a while, or how many where there are too many. Room is at
// the router that follows the members, View at an edge whose clients watch. Neither has I/O: what
// comes, and the time, goes in; updates come out. Updates may be lost, doubled and overtaken: a
// View that does not have the version which an update changes says so by the version that it has,
// and gets a snapshot.
package room

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

const (
	// Gather is how long changes are gathered before they are told together. Who leaves and comes
	// back within it was never away.
	Gather = 200 * time.Millisecond
	// CountEvery is the least time between two counts that are told alone.
	CountEvery = time.Second
	// BytesPerSecond is how many bytes of changes are told, to each who watches. Those of a longer
	// update are gathered for longer.
	BytesPerSecond = 256 << 10
	// MaxBytes is how many bytes of names and states are told one by one: a snapshot has to fit one
	// frame.
	MaxBytes = 640 << 10
)

// Rules say what of a room is told.
type Rules struct {
	// Counts alone; otherwise users by name, up to so many.
	Counts  bool
	Members int
}

// Room has the members of one topic. Its callers serialise its calls.
type Room struct {
	topic      string
	run        uint64
	rules      Rules
	users      users
	changed    []*user // to be compared with what was told
	version    uint64
	isLarge    bool // counts alone are told
	toldCount  int
	countedAt  time.Time
	restsUntil time.Time // after a long update
	due        time.Time // zero: nothing is to be told
	taking     bool      // a snapshot is taken in
	rulesMoved bool
}

// New makes a room without members. run names it among all that there ever are for the topic.
func New(topic string, run uint64, rules Rules) *Room {
	return &Room{topic: topic, run: run, rules: rules, users: newUsers(), version: 1, isLarge: rules.Counts}
}

// Put has a connection of a user be a member, with a state that it has since stateAt.
func (r *Room) Put(now time.Time, id uint64, user string, state []byte, stateAt uint64) {
	r.note(now, r.users.put(id, user, state, stateAt))
}

// Remove has a connection be no member.
func (r *Room) Remove(now time.Time, id uint64) { r.note(now, r.users.remove(id)) }

// Begin begins a snapshot: who is not Put until End has gone.
func (r *Room) Begin() {
	for _, c := range r.users.byConn {
		c.seen = false
	}
	r.taking = true
}

// End ends a snapshot.
func (r *Room) End(now time.Time) {
	r.taking = false
	for id, c := range r.users.byConn {
		if !c.seen {
			r.note(now, r.users.remove(id))
		}
	}
}

// Start says that what was put so far is what there was to begin with: the first snapshot, which
// comes next, tells all of it.
func (r *Room) Start() {
	r.due = time.Time{}
	if r.isLarge = r.large(); r.isLarge {
		r.forgetTold()
		r.toldCount = r.users.present
		return
	}
	r.tellAll()
}

// note has a user that may be different be looked at when the next changes are told.
func (r *Room) note(now time.Time, x *user) {
	if x == nil {
		return
	}
	switch {
	case r.isLarge:
		r.users.forget(x)
	case !x.changed:
		x.changed = true
		r.changed = append(r.changed, x)
	}
	r.dueBy(now.Add(Gather))
}

func (r *Room) dueBy(at time.Time) {
	if r.isLarge {
		if next := r.countedAt.Add(CountEvery); next.After(at) {
			at = next
		}
	}
	if r.restsUntil.After(at) {
		at = r.restsUntil
	}
	if r.due.IsZero() || at.Before(r.due) {
		r.due = at
	}
}

// SetRules has others hold from the next update on.
func (r *Room) SetRules(now time.Time, rules Rules) {
	if rules != r.rules {
		r.rules, r.rulesMoved = rules, true
		r.due = now
	}
}

// Due is when the next update may be made; ok is false where nothing is to be told.
func (r *Room) Due() (at time.Time, ok bool) { return r.due, !r.due.IsZero() }

// Version that the updates so far make, and the run that it is of.
func (r *Room) Version() (run, version uint64) { return r.run, r.version }

// connectionBytes is about what a connection takes beside its user's name and its state, here and
// where it is followed.
const connectionBytes = 512

// Bytes is about how much memory the members take. It grows and shrinks by what Put and Remove are
// given.
func (r *Room) Bytes() int { return len(r.users.byConn)*connectionBytes + r.users.connBytes }

// Count of users.
func (r *Room) Count() int { return r.users.present }

// large decides whether counts alone are told: too many users, or bytes of them. Once it is, there
// have to be a quarter fewer, so that it does not go to and fro.
func (r *Room) large() bool {
	members, size := r.rules.Members, MaxBytes
	if r.isLarge && !r.rulesMoved {
		members, size = members-members/4, size-size/4
	}
	return r.rules.Counts || r.users.present > members || r.users.bytes > size
}

// Update is what is to be told by now of what has changed; nil: nothing.
func (r *Room) Update(now time.Time) *meshv1.RoomUpdate {
	if r.due.IsZero() || now.Before(r.due) || r.taking {
		return nil
	}
	r.due = time.Time{}
	was := r.isLarge
	r.isLarge = r.large()
	r.rulesMoved = false
	switch {
	case r.isLarge && !was:
		r.forgetTold()
		return r.counted(now)
	case r.isLarge:
		if r.users.present == r.toldCount {
			return nil
		}
		return r.counted(now)
	case was:
		r.version++
		r.tellAll()
		return r.Snapshot()
	}
	return r.difference(now)
}

func (r *Room) counted(now time.Time) *meshv1.RoomUpdate {
	u := r.next()
	r.countedAt, r.toldCount = now, r.users.present
	u.Count, u.CountsOnly = uint64(r.toldCount), true
	return u
}

// next is an update to the next version.
func (r *Room) next() *meshv1.RoomUpdate {
	u := &meshv1.RoomUpdate{Topic: r.topic, Run: r.run, From: r.version, Version: r.version + 1}
	r.version++
	return u
}

// difference tells what has changed. Nothing may have, of users who were away for a moment.
func (r *Room) difference(now time.Time) *meshv1.RoomUpdate {
	var members []*meshv1.RoomUpdate_Member
	var left []string
	size := 0
	for i, x := range r.changed {
		r.changed[i], x.changed = nil, false
		there, differs := x.differs()
		switch {
		case !differs:
		case there:
			size += len(x.name) + len(x.state)
			members = append(members, &meshv1.RoomUpdate_Member{User: x.name, State: x.state})
		default:
			size += len(x.name)
			left = append(left, x.name)
		}
		x.told, x.toldState = there, x.state
		r.users.forget(x)
	}
	r.changed = r.changed[:0]
	r.toldCount = r.users.present
	if len(members)+len(left) == 0 {
		return nil
	}
	r.restsUntil = now.Add(time.Second * time.Duration(size) / BytesPerSecond)
	u := r.next()
	u.Members, u.Left, u.Count = members, left, uint64(r.toldCount)
	return u
}

// forgetTold is for a room that has become large: nobody is told of by name any more.
func (r *Room) forgetTold() {
	for _, x := range r.users.byName {
		x.told, x.toldState, x.changed = false, nil, false
		r.users.forget(x)
	}
	clear(r.changed)
	r.changed = r.changed[:0]
}

// tellAll is for a snapshot that everybody gets.
func (r *Room) tellAll() {
	for _, x := range r.users.byName {
		x.told, x.toldState, x.changed = len(x.conns) > 0, x.state, false
		r.users.forget(x)
	}
	clear(r.changed)
	r.changed, r.toldCount = r.changed[:0], r.users.present
}

// Snapshot is all that was told so far, for who has another version.
func (r *Room) Snapshot() *meshv1.RoomUpdate {
	u := &meshv1.RoomUpdate{Topic: r.topic, Run: r.run, Version: r.version, Count: uint64(r.toldCount), CountsOnly: r.isLarge}
	if r.isLarge {
		return u
	}
	for _, x := range r.users.byName {
		if x.told {
			u.Members = append(u.Members, &meshv1.RoomUpdate_Member{User: x.name, State: x.toldState})
		}
	}
	return u
}
