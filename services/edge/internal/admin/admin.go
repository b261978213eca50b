// Package admin does on an event loop what operators and backends ask of it about connections: it
// closes those of a client or user, and replaces what their messages are ranked for.
package admin

import (
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Delivery is what admin needs of the loop's connections.
type Delivery interface {
	// Slots is how many slots there are. Client is who the connection in one belongs to, user being
	// "" where it has proven none; is is false where it is neither open nor waits for its session.
	Slots() uint32
	Client(slot uint32) (clientID, user string, backend, is bool)
	// CloseSlot closes a connection with an Error.
	CloseSlot(slot uint32, why wirev1.Code, reason string)
	// SetProfile replaces what the connection's messages are ranked for.
	SetProfile(slot uint32, p *exchange.Profile)
}

// Admin is used by one loop alone.
type Admin struct {
	Delivery Delivery
	Jobs     *walk.Jobs
	Cost     *walk.Cost
}

const (
	// slotsSlice is how many slots are looked at in one go: 100,000 of them are some milliseconds
	// in slices of some microseconds, which costs less than an index that every connection would
	// have to be in.
	slotsSlice = 256
	// closeCost is how many units closing a connection counts for.
	closeCost = 8
)

// each looks at the connections of a client or user, some slots at a time.
type each struct {
	a     *Admin
	who   whom
	slots walk.Slots
	n     int
	do    func(slot uint32)
	done  func(n int)
}

// Step implements walk.Job.
func (j *each) Step() bool {
	d := j.a.Delivery
	done := j.slots.Step(j.a.Cost, slotsSlice, d.Slots(), func(slot uint32) bool {
		if id, user, backend, is := d.Client(slot); is && j.who.has(id, user, backend) {
			j.n++
			j.do(slot)
		}
		return true
	})
	if done && j.done != nil {
		j.done(j.n)
	}
	return done
}

// Disconnect closes connections.
func (a *Admin) Disconnect(e exchange.Disconnect) {
	why := e.Code
	if why == wirev1.Code_CODE_OK {
		why = wirev1.Code_CODE_CANCELLED
	}
	a.Jobs.Push(&each{a: a, who: whomOf(e.ClientID, e.User), done: e.Reply, do: func(slot uint32) {
		a.Delivery.CloseSlot(slot, why, e.Reason)
		a.Cost.Add(closeCost * walk.ItemsPerUnit)
	}})
}

// SetProfile replaces the profile of connections.
func (a *Admin) SetProfile(e exchange.SetProfile) {
	a.Jobs.Push(&each{a: a, who: whomOf(e.ClientID, e.User), done: e.Reply, do: func(slot uint32) {
		a.Delivery.SetProfile(slot, e.Profile)
	}})
}
