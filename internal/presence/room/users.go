package room

import "bytes"

// users are the members of a topic by user: connections of one user are one member. One without
// connections stays until forget, so that it is the same if it comes back.
type users struct {
	byName  map[string]*user
	byConn  map[uint64]*connection
	present int // that have connections
	bytes   int // of their names and states
	// connBytes are those of the names and states of all connections.
	connBytes int
}

// user is a member, or was one until what has changed is told.
type user struct {
	name  string
	conns []*connection
	state []byte // the newest of its connections' states
	// told: others know of it, with toldState.
	told, changed bool
	toldState     []byte
}

type connection struct {
	user    *user
	id      uint64
	state   []byte
	stateAt uint64
	seen    bool // since the snapshot in hand began
}

func newUsers() users {
	return users{byName: map[string]*user{}, byConn: map[uint64]*connection{}}
}

// put has a connection be there, with a state, and returns its user; nil: nothing is different.
func (u *users) put(id uint64, name string, state []byte, stateAt uint64) *user {
	c := u.byConn[id]
	switch {
	case c == nil:
		c = &connection{user: u.user(name), id: id}
		if len(c.user.conns) == 0 {
			u.present++
			u.bytes += len(name)
		}
		c.user.conns = append(c.user.conns, c)
		u.connBytes += len(name)
		u.byConn[id] = c
	case c.stateAt >= stateAt:
		c.seen = true // it is known, whichever edge's report of it came last
		return nil
	}
	u.connBytes += len(state) - len(c.state)
	c.state, c.stateAt, c.seen = state, stateAt, true
	u.settle(c.user)
	return c.user
}

// user finds or makes one.
func (u *users) user(name string) *user {
	x := u.byName[name]
	if x == nil {
		x = &user{name: name}
		u.byName[name] = x
	}
	return x
}

// remove has a connection be gone, and returns the user that it was of; nil: it was not there.
func (u *users) remove(id uint64) *user {
	c := u.byConn[id]
	if c == nil {
		return nil
	}
	delete(u.byConn, id)
	u.connBytes -= len(c.state) + len(c.user.name)
	x := c.user
	for i := range x.conns {
		if x.conns[i] == c {
			last := len(x.conns) - 1
			x.conns[i], x.conns[last] = x.conns[last], nil
			x.conns = x.conns[:last]
			break
		}
	}
	u.settle(x)
	if len(x.conns) == 0 {
		u.present--
		u.bytes -= len(x.name)
	}
	return x
}

// forget drops a user that has no connections.
func (u *users) forget(x *user) {
	if len(x.conns) == 0 {
		delete(u.byName, x.name)
	}
}

// settle makes the newest state of a user's connections the user's. Of two that are as new, the
// connection with the higher id has it.
func (u *users) settle(x *user) {
	var newest *connection
	for _, c := range x.conns {
		if newest == nil || c.stateAt > newest.stateAt || c.stateAt == newest.stateAt && c.id > newest.id {
			newest = c
		}
	}
	u.bytes -= len(x.state)
	if x.state = nil; newest != nil {
		x.state = newest.state
	}
	u.bytes += len(x.state)
}

// differs reports whether others know something else of a user than what is so. there: it has a
// connection.
func (x *user) differs() (there, differs bool) {
	there = len(x.conns) > 0
	return there, there != x.told || there && !bytes.Equal(x.state, x.toldState)
}
