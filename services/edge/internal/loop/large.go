package loop

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// smallRest is what each connection may have of a frame that has not come whole, however many
	// have.
	smallRest = 16 << 10
	// addressParts says how much of --frame-memory the connections of one address may have: one
	// part in so many, of what the loop has.
	addressParts = 4
)

// Who has sent much of a frame that has not come whole is refused where there is no memory for it.
var (
	noFrameRoom   = code.Retry(wirev1.Code_CODE_OVERLOADED, 5*time.Second, "the edge has no memory left for frames that have not arrived whole (--frame-memory)")
	noAddressRoom = code.Retry(wirev1.Code_CODE_OVERLOADED, 5*time.Second, "frames of this address that have not arrived whole take a quarter of --frame-memory, which is all that they may")
)

// largeParts are the parts of frames and TLS records above smallRest, in bytes. Few connections
// have one at a time, so that others have nothing for it.
type largeParts struct {
	bySlot    map[uint32]largePart
	byAddress map[string]int
}

type largePart struct {
	address string // "": it counts for none
	bytes   int
}

// set notes that a part takes n bytes by now, and says how many the parts of its address take.
func (s *largeParts) set(slot uint32, n int, address func(slot uint32) string) (all int) {
	x, is := s.bySlot[slot]
	if !is {
		if s.bySlot == nil {
			s.bySlot, s.byAddress = map[uint32]largePart{}, map[string]int{}
		}
		x.address = address(slot)
	}
	if x.address != "" {
		s.byAddress[x.address] += n - x.bytes
	}
	x.bytes = n
	s.bySlot[slot] = x
	return s.byAddress[x.address]
}

// drop notes that a connection has no large part any more.
func (s *largeParts) drop(slot uint32) {
	x, is := s.bySlot[slot]
	if !is {
		return
	}
	delete(s.bySlot, slot)
	if s.byAddress[x.address] -= x.bytes; s.byAddress[x.address] <= 0 {
		delete(s.byAddress, x.address)
	}
}

// countPart brings the large parts up to date with one connection's, and says how much it is, and
// how much the parts of its address take; 0: its own is small, or counts for no address.
func (l *Loop) countPart(slot uint32, p *peer) (n, ofAddress int) {
	if n = p.parts(); n <= smallRest {
		l.peers.large.drop(slot)
		return 0, 0
	}
	return n, l.peers.large.set(slot, n, l.partOrigin)
}

// partOrigin is the address for which a connection's large part counts; a router's is nobody's.
func (l *Loop) partOrigin(slot uint32) string {
	if l.hub.Unlimited(slot) {
		return ""
	}
	return l.origin(slot)
}

// refuseLargePart refuses a connection that has sent much of a frame, or of a record and the frame
// that goes on in it, where there is no memory left for such parts, or its address has its share of
// it. One frame of an address fits in any case.
func (l *Loop) refuseLargePart(slot uint32, p *peer) bool {
	n, ofAddress := l.countPart(slot, p)
	why := noFrameRoom
	switch {
	case n == 0:
		return false
	case l.peers.kept > l.cfg.FrameMemory:
	case ofAddress > max(l.cfg.FrameMemory/addressParts, 2*l.cfg.Limits.MaxFrame):
		why = noAddressRoom
	default:
		return false
	}
	l.hub.Refuse(slot, why)
	l.forget(slot, p)
	return true
}

// forget drops what was read of a connection and is not handled.
func (l *Loop) forget(slot uint32, p *peer) {
	l.peers.keep(p, nil)
	if p.web != nil {
		l.peers.putWeb(p.web, 0, nil)
		l.peers.dropText(p.web)
	}
	if p.secure != nil {
		l.peers.putSealed(p.secure, 0, nil)
	}
	l.peers.large.drop(slot)
}
