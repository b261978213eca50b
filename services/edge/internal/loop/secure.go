package loop

import (
	"errors"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/handshake"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/record"
)

const (
	// recordHandshake is what a TLS client begins with.
	recordHandshake = 0x16
	// handshakeAhead is how many bytes a client may send ahead of its handshake before it is not
	// read any more.
	handshakeAhead = 64 << 10
	// shakenCost of a step of a handshake, in deliveries.
	shakenCost = 4
)

// secure is the TLS of a connection: hands are being shaken, or conn opens and seals records. An
// idle one has no buffer of its own.
type secure struct {
	hand *handshake.Handshake // nil: not begun, or over
	conn *record.Conn         // nil: hands are not shaken
	// read and not opened: a record that has not come whole, or records that wait
	in  []byte
	out []byte // ciphertext that the socket has not taken
	bye bool   // nothing is sealed any more
}

// full says that a handshake has more to go on with than it may have.
func (s *secure) full() bool { return s.hand != nil && s.hand.Waiting() > handshakeAhead }

// owes reports whether something is to be sent: frames, where they can be sealed, or ciphertext.
func (s *secure) owes(frames bool) bool { return len(s.out) > 0 || frames && s.seals() }

func (s *secure) seals() bool { return s.conn != nil && !s.bye }

// takeSealed is take for a connection with TLS. What was opened and not handled comes first.
func (l *Loop) takeSealed(slot uint32, p *peer, fresh []byte) bool {
	s := p.secure
	if s.conn == nil {
		l.shake(slot, p, fresh)
		return true
	}
	if fresh == nil && (p.rest != nil || p.web != nil) && !l.takePlain(slot, p, nil) {
		return false
	}
	b := fresh
	if len(s.in) > 0 {
		l.peers.putSealed(s, len(s.in), fresh)
		b = s.in
	}
	goesOn := true
	n := record.Whole(b)
	for ; n > 0 && goesOn && p.open() && l.remainingShare(p) > 0; n = record.Whole(b) {
		goesOn = l.open(slot, p, b[:n])
		b = b[n:]
	}
	if !p.open() {
		return false
	}
	l.peers.putSealed(s, 0, b)
	switch {
	case n > 0 && goesOn:
		p.fed = true // its share is used up
	case n == 0 && len(b) > 0:
		l.hub.RecordBegun(slot)
	}
	l.refuseLargePart(slot, p)
	return goesOn
}

// open handles one record. False where reading must not go on now.
func (l *Loop) open(slot uint32, p *peer, sealed []byte) bool {
	s := p.secure
	l.stats.Records++
	n, out, err := s.conn.Open(l.plain(), sealed, s.out)
	if len(out) > len(s.out) {
		s.out = out
		l.outside(slot, p)
		l.wantFlush(slot, p)
	}
	switch {
	case errors.Is(err, record.ErrEnded):
		l.end(slot, p)
		return false
	case err != nil:
		s.bye = true
		l.hub.Cut(slot, wirev1.Code_CODE_BAD_FRAME, err.Error())
		return false
	case n == 0:
		if p.rest == nil && (p.web == nil || len(p.web.in) == 0 && p.web.frames.Idle()) {
			l.hub.RecordWhole(slot) // it held no data, so no frame ends with it
		}
		l.spend(p, emptyRecordUnits)
		return true
	}
	goesOn := l.takePlain(slot, p, l.opened[:n])
	l.spend(p, recordUnits)
	return goesOn
}

// shake goes on with a handshake: it begins with the first record that has come whole, so that who
// sends a part of it has no goroutine.
func (l *Loop) shake(slot uint32, p *peer, fresh []byte) {
	s := p.secure
	l.spend(p, max(len(fresh)/kib, 1))
	if s.hand != nil {
		s.hand.Feed(fresh)
		return
	}
	if l.peers.putSealed(s, len(s.in), fresh); s.bye || record.Whole(s.in) == 0 {
		return
	}
	if !l.shed.on {
		s.hand = l.cfg.Handshakes.Begin(exchange.Conn{Loop: l.cfg.Index, Slot: slot, Gen: p.gen}, l.origin(slot), s.in)
	}
	if l.peers.putSealed(s, 0, nil); s.hand == nil {
		s.out, s.bye = handshake.Overloaded(), true
		l.outside(slot, p)
		l.hub.Cut(slot, wirev1.Code_CODE_OVERLOADED, "too many handshakes are under way")
	}
}

// shaken takes what a handshake has done.
func (l *Loop) shaken(at exchange.Conn) {
	p := l.peers.get(at.Slot)
	if p == nil || !p.open() || p.gen != at.Gen || p.secure == nil || p.secure.hand == nil {
		l.stats.StaleEvents++
		return
	}
	s := p.secure
	sent, result := s.hand.Take()
	s.out = append(s.out, sent...)
	l.outside(at.Slot, p)
	l.wantFlush(at.Slot, p)
	switch {
	case result == nil:
	case result.Conn == nil:
		s.hand, s.bye = nil, true
		l.hub.Cut(at.Slot, result.Code, result.Text)
	default:
		s.hand, s.conn, s.in = nil, result.Conn, result.Rest
		l.hub.Secured(at.Slot, result.Security)
		l.peers.kept += cap(s.in)
		p.fed = len(s.in) > 0
	}
	l.wantRead(at.Slot, p)
}

// unsecure ends the TLS of a connection that ends.
func (l *Loop) unsecure(slot uint32, p *peer) {
	if p.secure == nil {
		return
	}
	if p.secure.hand != nil {
		p.secure.hand.End()
	}
	l.peers.putSealed(p.secure, 0, nil)
	l.peers.secures.Give(p.secure)
	p.secure = nil
	l.peers.less(p)
	l.stats.Secure--
	l.hub.Outside(slot, 0)
}

// putSealed writes b behind the first n bytes of what was read and not opened. It counts as parts
// of frames do.
func (s *peers) putSealed(x *secure, n int, b []byte) {
	s.kept -= cap(x.in)
	if x.in = append(x.in[:n], b...); len(x.in) == 0 {
		x.in = nil
	}
	s.kept += cap(x.in)
}
