package loop

import (
	"errors"
	"net/netip"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// mostTurned is how many refused connections a loop keeps until they have read why. Those beyond
// are cut off: who comes in a flood gets no more of the edge than a descriptor for a moment.
const mostTurned = 1024

// marks of a connection.
type marks uint8

const (
	counted marks = 1 << iota // by the door
	turned                    // refused by the door, and among loop.turned
	// comes from one that may send a PROXY header, and has sent nothing yet but a part of that
	fromProxy
	begun  // its first byte has come
	spoke  // its first byte has come that is not TLS
	isWeb  // it speaks HTTP, or WebSocket
	isText // its messages are JSON
)

// accept takes connections from the kernel, as many as the edge takes in a second. What is left
// waits there, in the listener's backlog.
func (l *Loop) accept() (something bool) {
	for n := 0; l.accepts && n < acceptBudget; n++ {
		something = true
		if !l.deafens() && !l.door.Takes(l.clock.at) {
			l.acceptLater()
			l.stats.AcceptWaits++
			break
		}
		fd, from, err := l.poller.Accept()
		if err != nil {
			l.accepts, l.stats.NoDescriptors = false, false
			if errors.Is(err, poll.ErrFull) {
				l.acceptLater()
				l.stats.NoDescriptors = true
				l.stats.AcceptFull++
			}
			break
		}
		l.door.Came(l.clock.at)
		l.admit(fd, from)
	}
	return something
}

// acceptLater has the next tick look at the listener, and not before: who comes meanwhile wakes the
// loop for nothing.
func (l *Loop) acceptLater() { l.accepts, l.waits = false, true }

// acceptAgain is called by each tick.
func (l *Loop) acceptAgain() {
	l.accepts = l.accepts || l.waits && !l.deaf
	l.waits = false
}

// deafens says that the listener is about to be closed: who waits there is told so at once.
func (l *Loop) deafens() bool { return l.swept && !l.deaf }

// admit gives a connection a slot, where it may stay or reads why not.
func (l *Loop) admit(fd int, from netip.Addr) {
	l.stats.Accepts++
	place, why := l.enter(from)
	if why != nil && l.turned >= mostTurned {
		poll.Close(fd)
		l.hub.CutOff(why.Code)
		return
	}
	slot, gen := l.hub.Open()
	p := l.peers.make(slot)
	*p = p.vacant()
	p.fd, p.gen, p.writable = int32(fd), gen, true
	if why != nil {
		p.marks |= turned
		l.turned++
		l.hub.Refuse(slot, why)
	} else {
		p.marks |= counted
		l.setPlace(slot, place)
		if l.door.Proxy(from) {
			p.marks |= fromProxy
		}
	}
	if err := l.poller.Add(fd, slot, gen); err != nil {
		l.stats.PollErrors++
		l.end(slot, p)
	}
}

// enter asks the door. Whom a proxy connects for it says later.
func (l *Loop) enter(from netip.Addr) (place uint32, why *code.Error) {
	if why = l.door.Enter(); why != nil {
		return 0, why
	}
	if l.door.Proxy(from) || l.door.Forwards(from) {
		return 0, nil
	}
	if place, why = l.door.EnterFrom(from, l.clock.at); why != nil {
		l.door.Leave()
		l.refused(from, why)
	}
	return place, why
}

// refused notes that an address is at its limit.
func (l *Loop) refused(from netip.Addr, why *code.Error) {
	l.stats.AddressRefusals++
	l.stats.LastRefused, l.stats.RefusedFor = from, why.Code
}

// leave takes back what a connection was at the door, once it has no socket any more, and its pace.
func (l *Loop) leave(slot uint32, p *peer) {
	if int(slot) < l.paces.Len() {
		*l.paces.At(int(slot)) = pace{}
	}
	if p.marks&counted != 0 {
		l.door.Leave()
		if int(slot) < l.places.Len() {
			l.door.LeaveFrom(*l.places.At(int(slot)))
			l.setPlace(slot, 0)
		}
		l.peers.setClient(slot, [16]byte{})
	}
	if p.marks&turned != 0 {
		l.turned--
	}
}

// setPlace takes no memory where addresses are not counted.
func (l *Loop) setPlace(slot, place uint32) {
	if place == 0 && int(slot) >= l.places.Len() {
		return
	}
	for l.places.Len() <= int(slot) {
		l.places.Take()
	}
	*l.places.At(int(slot)) = place
}
