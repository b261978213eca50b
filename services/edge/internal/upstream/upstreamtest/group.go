package upstreamtest

import (
	"slices"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Member of a group, as the loops tell of it.
type Member struct {
	exchange.GroupJoin
	Conn   exchange.Conn
	Sub    uint32
	Paused bool
}

// JoinGroup implements exchange.Groups: whoever comes is a member.
func (m *Mesh) JoinGroup(conn exchange.Conn, sub uint32, j *exchange.GroupJoin) {
	m.mu.Lock()
	m.members = append(m.members, &Member{GroupJoin: *j, Conn: conn, Sub: sub})
	err := m.GroupErr
	m.mu.Unlock()
	m.send(exchange.GroupJoined{Conn: conn, Sub: sub, Epoch: BaseEpoch, Err: err})
}

// PauseGroup implements exchange.Groups.
func (m *Mesh) PauseGroup(conn exchange.Conn, sub uint32) { m.pause(conn, sub, true) }

// ResumeGroup implements exchange.Groups.
func (m *Mesh) ResumeGroup(conn exchange.Conn, sub uint32) { m.pause(conn, sub, false) }

func (m *Mesh) pause(conn exchange.Conn, sub uint32, paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.members {
		if o.Conn == conn && o.Sub == sub {
			o.Paused = paused
		}
	}
}

// LeaveGroup implements exchange.Groups.
func (m *Mesh) LeaveGroup(conn exchange.Conn, sub uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.members)
	if m.members = slices.DeleteFunc(m.members, func(o *Member) bool { return o.Conn == conn && o.Sub == sub }); len(m.members) != n-1 {
		panic("upstreamtest: LeaveGroup without JoinGroup")
	}
}

// SettleGroup implements exchange.Groups.
func (m *Mesh) SettleGroup(all []exchange.GroupSettled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settled = append(m.settled, all...)
}

// Members of groups now.
func (m *Mesh) Members() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Member, len(m.members))
	for i, o := range m.members {
		out[i] = *o
	}
	return out
}

// Settled takes what members said of their messages since it was called last.
func (m *Mesh) Settled() []exchange.GroupSettled {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.settled
	m.settled = nil
	return all
}

// Assign gives messages to a member.
func (m *Mesh) Assign(to Member, attempt uint32, msgs ...*exchange.Message) {
	m.send(exchange.Assigned{Conn: to.Conn, Sub: to.Sub, Messages: msgs, Attempts: slices.Repeat([]uint32{attempt}, len(msgs))})
}
