package loop

import "github.com/pushmesh/pushmesh/services/edge/internal/tls/record"

const (
	// sealMost is how many bytes of frames are sealed for a connection in a flush: some 40 µs of
	// work.
	sealMost = 4 * record.MaxPlain
	// sealRoom is what they come to.
	sealRoom = sealMost + (sealMost/record.MaxPlain+1)*record.Overhead
	// sealBudget bounds what a flush seals for all, to some 300 µs.
	sealBudget = 8 * sealRoom
)

// sealer is what a loop seals and opens with. It has memory once the first connection has TLS.
type sealer struct {
	opened []byte   // of the record in hand
	frames []byte   // of the connection in hand, side by side; nil: all had one piece so far
	arena  []byte   // ciphertext of this flush
	pieces [][]byte // what the hub has gathered
	later  []uint32 // slots that this flush has no room for
}

// plain has room for what one record holds.
func (s *sealer) plain() []byte {
	if s.opened == nil {
		s.opened = make([]byte, record.MaxPlain)
	}
	return s.opened
}

// sideBySide is what pieces hold, sealMost bytes at most. A single piece, such as a run of messages
// that many subscribers get, is sealed from where it lies: copying it first for each of them is 2 %
// of what a delivery with TLS costs (BenchmarkFanOutOverTLS).
func (s *sealer) sideBySide(pieces [][]byte) []byte {
	if len(pieces) == 1 {
		return pieces[0][:min(len(pieces[0]), sealMost)]
	}
	if s.frames == nil && len(pieces) > 1 {
		s.frames = make([]byte, 0, sealMost)
	}
	all := s.frames[:0]
	for _, b := range pieces {
		n := min(len(b), sealMost-len(all))
		all = append(all, b[:n]...)
	}
	return all
}

// gatherSealed gives the sender what a connection with TLS is owed: the ciphertext that its socket
// has not taken, or else its frames, sealed together.
func (l *Loop) gatherSealed(slot uint32, p *peer) {
	s := p.secure
	b := sending{slot: slot, sealed: s.out}
	if p.writable && len(s.out) == 0 && p.owes(l.hub.Status(slot).Owes) {
		if cap(l.arena) == 0 {
			l.arena = make([]byte, 0, sealBudget)
		}
		if cap(l.arena)-len(l.arena) < sealRoom {
			l.later = append(l.later, slot)
			return
		}
		b.sealed, b.frames = l.seal(slot, p)
		b.fresh = true
	}
	if b.owed = p.writable && len(b.sealed) > 0; b.owed {
		at := len(l.bufs)
		l.bufs = append(l.bufs, b.sealed)
		l.sender.Add(int(p.fd), l.bufs[at:])
	}
	l.batch = append(l.batch, b)
}

// seal seals frames that the connection is owed, sealMost at most, and says how many bytes of them.
// The hub is told once the batch has been sent: what it gathered for others lies in its hands until
// then.
func (l *Loop) seal(slot uint32, p *peer) (sealed []byte, frames int) {
	all, frames := l.toSeal(slot, p)
	if len(all) == 0 {
		return nil, 0 // it has expired
	}
	at := len(l.arena)
	out, err := p.secure.conn.Seal(l.arena, all)
	if err != nil {
		p.secure.bye = true // it has sent an alert, and is closing
		return nil, 0
	}
	l.stats.Sealed += uint64((len(all) + record.MaxPlain - 1) / record.MaxPlain)
	l.arena = out
	return out[at:len(out):len(out)], frames
}

// toSeal is what goes into the next records of a connection, and how many bytes of frames that is.
func (l *Loop) toSeal(slot uint32, p *peer) (all []byte, frames int) {
	if p.marks&isWeb != 0 {
		return l.messageToSeal(slot, p)
	}
	l.pieces = l.hub.Gather(slot, l.pieces[:0], 0)
	all = l.sideBySide(l.pieces)
	clear(l.pieces)
	return all, len(all)
}

// sentSealed keeps what the socket has not taken of b.
func (l *Loop) sentSealed(b *sending, p *peer, n int) {
	s := p.secure
	switch rest := b.sealed[n:]; {
	case len(rest) == 0:
		s.out = nil
	case b.fresh:
		s.out = append([]byte(nil), rest...)
	default:
		s.out = rest
	}
	if b.frames > 0 {
		l.hub.Wrote(b.slot, b.frames)
	}
	l.outside(b.slot, p)
}

// flushLater has those flushed in the next turn that this one had no room for.
func (l *Loop) flushLater() {
	for _, slot := range l.later {
		if p := l.peers.get(slot); p.open() {
			l.wantFlush(slot, p)
		}
	}
	l.later = l.later[:0]
}

// saidBye reports whether the connection may be shut; one with TLS is owed a close_notify before.
func (l *Loop) saidBye(slot uint32, p *peer) bool {
	if l.farewell(slot, p) {
		return false
	}
	s := p.secure
	if s != nil && s.hand != nil {
		s.hand.End()
	}
	if s == nil || !s.seals() {
		return true
	}
	s.bye = true
	out, err := s.conn.Bye(nil)
	if err != nil || len(out) == 0 {
		return true
	}
	s.out = out
	l.outside(slot, p)
	l.wantFlush(slot, p)
	return false
}
