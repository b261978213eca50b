package loop

import (
	"errors"

	"github.com/pushmesh/pushmesh/services/edge/internal/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/slab"
)

// peer is the socket of the connection in a slot. An idle one has no buffer.
type peer struct {
	fd        int   // -1: none
	rest      *rest // nil: none
	gen       uint32
	discarded uint32
	readable  bool // the socket may have more
	writable  bool // the socket may take more
	hungUp    bool // the peer sends no more, so that reading goes on to the end
	fed       bool // rest may hold a whole frame
	reading   bool // in loop.reads
	flushing  bool // in loop.flushes
	shut      bool // the edge sends no more
}

// rest is what was read of a connection and is not handled yet: a frame that has not come whole, or frames that wait.
type rest struct{ bytes []byte }

const (
	// lingerBytes is how much of what a closing connection still sends is read, so that its last words are not lost to a reset.
	lingerBytes = 8 << 20
)

// peers holds them by slot, where the collector does not look.
type peers struct {
	slab  slab.Slab[peer]
	rests slab.Pool[rest]
}

func (s *peers) len() uint32 { return uint32(s.slab.Len()) }

func (s *peers) get(slot uint32) *peer {
	if slot >= s.len() {
		return nil
	}
	return s.slab.At(int(slot))
}

func (s *peers) make(slot uint32) *peer {
	for s.len() <= slot {
		s.slab.Take().fd = -1
	}
	return s.get(slot)
}

// keep makes b the rest of p. b may lie in the present one.
func (s *peers) keep(p *peer, b []byte) {
	switch {
	case len(b) == 0 && p.rest != nil:
		s.rests.Give(p.rest)
		p.rest = nil
	case len(b) > 0:
		if p.rest == nil {
			p.rest = s.rests.Take()
		}
		p.rest.bytes = append(p.rest.bytes[:0], b...)
	}
}

func (l *Loop) wantRead(slot uint32, p *peer) {
	if !p.reading {
		p.reading = true
		l.reads = append(l.reads, slot)
	}
}

func (l *Loop) wantFlush(slot uint32, p *peer) {
	if !p.flushing {
		p.flushing = true
		l.flushes = append(l.flushes, slot)
	}
}

// read gives connections their turn to be read; what is left of the list waits for the next turn.
func (l *Loop) read() {
	n := min(len(l.reads), readBudget)
	l.slots = append(l.slots[:0], l.reads[:n]...)
	l.reads = l.reads[:copy(l.reads, l.reads[n:])]
	for _, slot := range l.slots {
		p := l.peers.get(slot)
		p.reading = false
		if p.fd >= 0 {
			l.readPeer(slot, p)
			l.heard = append(l.heard, slot)
		}
	}
}

// readPeer handles what is left of the last read, then reads once.
func (l *Loop) readPeer(slot uint32, p *peer) {
	st := l.hub.Status(slot)
	if st.Closing {
		l.discard(slot, p)
		return
	}
	if st.Hold {
		return // Resumed names the slot
	}
	if p.fed {
		p.fed = false
		if !l.feed(slot, p, nil) {
			return
		}
	}
	if !p.readable {
		return
	}
	n, err := poll.Read(p.fd, l.buf)
	l.stats.Reads++
	switch {
	case errors.Is(err, poll.ErrAgain):
		p.readable = false
		return
	case err != nil || n == 0:
		l.end(slot, p)
		return
	}
	l.stats.ReadBytes += uint64(n)
	l.hub.Heard(slot)
	if n < len(l.buf) && !p.hungUp {
		p.readable = false // more would be a new edge
	}
	if l.feed(slot, p, l.buf[:n]) && p.readable {
		l.wantRead(slot, p)
	}
}

// feed gives the hub whole frames and keeps the rest. False where reading must not go on now.
func (l *Loop) feed(slot uint32, p *peer, fresh []byte) bool {
	b := fresh
	if p.rest != nil {
		p.rest.bytes = append(p.rest.bytes, fresh...)
		b = p.rest.bytes
	}
	used, more := l.hub.Feed(slot, b, feedBudget)
	if used > 0 || p.rest == nil {
		l.peers.keep(p, b[used:])
	}
	if !more {
		return true
	}
	p.fed = true
	if !l.hub.Status(slot).Hold {
		l.wantRead(slot, p)
	}
	return false
}

// discard reads what a closing connection still sends.
func (l *Loop) discard(slot uint32, p *peer) {
	l.peers.keep(p, nil)
	for range 4 {
		n, err := poll.Read(p.fd, l.buf)
		if errors.Is(err, poll.ErrAgain) {
			p.readable = false
			return
		}
		p.discarded += uint32(n)
		if err != nil || n == 0 || p.discarded > lingerBytes {
			l.end(slot, p)
			return
		}
	}
	l.wantRead(slot, p)
}

// sayGoodbye ends the edge's side; the peer's last bytes are read for a while, so that it gets ours.
func (l *Loop) sayGoodbye(slot uint32, p *peer) {
	p.shut = true
	if poll.EndWrites(p.fd) != nil {
		l.end(slot, p)
		return
	}
	p.readable = true
	l.wantRead(slot, p)
}

// end closes the socket and tells the hub.
func (l *Loop) end(slot uint32, p *peer) {
	poll.Close(p.fd)
	l.peers.keep(p, nil)
	*p = peer{fd: -1, reading: p.reading, flushing: p.flushing}
	l.hub.Gone(slot)
}
