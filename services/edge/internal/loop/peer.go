package loop

import (
	"errors"

	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/tls/record"
)

// peer is the socket of the connection in a slot. An idle one has no buffer.
type peer struct {
	*peerMore
	fd        int32 // -1: none
	gen       uint32
	discarded uint16 // KiB, each read rounded up
	period    uint16 // of time, in which spent was
	spent     uint8  // of its share, or of the next ones
	marks     marks  // of the door, and begun
	readable  bool   // the socket may have more
	writable  bool   // the socket may take more
	hungUp    bool   // the peer sends no more, so that reading goes on to the end
	fed       bool   // rest may hold a whole frame, or secure a whole record
	reading   bool   // in loop.reads
	deferred  bool   // put off or paused, and so not in reads
	flushing  bool   // in loop.flushes
	stalled   bool   // in loop.stalled
	shut      bool   // the edge sends no more
	ending    bool   // nothing is read or sent any more; closes ends the socket
}

// peerMore is what few connections have at a time, but for those with TLS. It is written through
// peers.more alone: without any it is noPeerMore.
type peerMore struct {
	rest   *rest   // nil: none
	secure *secure // nil: there is no TLS
	web    *web    // nil: there is no WebSocket, or it is at rest
}

var noPeerMore = slab.None[peerMore]()

const noSocket = -1

// vacant is the slot without a connection: it may still stand in the lists of the loop.
func (p *peer) vacant() peer {
	return peer{peerMore: noPeerMore, fd: noSocket, reading: p.reading, flushing: p.flushing, stalled: p.stalled}
}

// open reports whether the slot has a connection that goes on.
func (p *peer) open() bool { return p.fd >= 0 && !p.ending }

// parts is how much memory holds a frame of the connection that has not come whole, and a record.
// What begins with a whole one waits for the edge, and is no part: there is no more of it than one
// read brings.
func (p *peer) parts() (n int) {
	if p.rest != nil && !wholeFrame(p.rest.bytes) {
		n = cap(p.rest.bytes)
	}
	if p.web != nil {
		n += cap(p.web.text)
	}
	if p.secure != nil && record.Whole(p.secure.in) == 0 {
		n += cap(p.secure.in)
	}
	return n
}

func wholeFrame(b []byte) bool {
	n, _, ok := wire.Header(b)
	return ok && len(b) >= wire.HeaderSize+n
}

// rest is what was read of a connection and is not handled yet: a frame that has not come whole, or
// frames that wait.
type rest struct{ bytes []byte }

// lingerKiB is how much of what a closing connection still sends is read, so that its last words
// are not lost to a reset.
const lingerKiB = 8 << 10

// discardReads is how often one that closes is read in a turn.
const discardReads = 4

// peers holds them by slot, where the collector does not look.
type peers struct {
	slab    slab.Slab[peer]
	mores   slab.Slab[peerMore]
	rests   slab.Pool[rest]
	kept    int // bytes of memory in rests, and of records that have not come whole
	large   largeParts
	secures slab.Pool[secure]
	webs    slab.Pool[web]
	clients slab.Slab[[16]byte] // whom proxies connect for, by slot; zero: nobody
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
		*s.slab.Take() = peer{peerMore: noPeerMore, fd: noSocket}
	}
	return s.get(slot)
}

// more is what p has of peerMore, to be written to.
func (s *peers) more(p *peer) *peerMore {
	if p.peerMore == noPeerMore {
		p.peerMore = s.mores.Take()
	}
	return p.peerMore
}

// less gives it back where nothing is in it.
func (s *peers) less(p *peer) {
	if m := p.peerMore; m != noPeerMore && m.rest == nil && m.secure == nil && m.web == nil {
		s.mores.Free(m)
		p.peerMore = noPeerMore
	}
}

// keep makes b the rest of p. b may lie in the present one.
func (s *peers) keep(p *peer, b []byte) {
	switch {
	case len(b) == 0 && p.rest != nil:
		s.kept -= cap(p.rest.bytes)
		s.rests.Give(p.rest)
		p.rest = nil
		s.less(p)
	case len(b) > 0:
		if p.rest == nil {
			s.more(p).rest = s.rests.Take()
		}
		s.put(p.rest, 0, b)
	}
}

// put writes b behind the first n bytes of a rest.
func (s *peers) put(r *rest, n int, b []byte) {
	s.kept -= cap(r.bytes)
	r.bytes = append(r.bytes[:n], b...)
	s.kept += cap(r.bytes)
}

func (l *Loop) wantRead(slot uint32, p *peer) {
	if !p.reading && !p.deferred {
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
func (l *Loop) read() (something bool) {
	n := min(len(l.reads), readBudget)
	if n == 0 {
		return false
	}
	l.slots = append(l.slots[:0], l.reads[:n]...)
	l.reads = l.reads[:copy(l.reads, l.reads[n:])]
	began, most := l.clock.at, l.readTime()
	l.period = l.periodAt(began)
	for i, slot := range l.slots {
		if i%readSlice == readSlice-1 && l.timeUp(began, most) {
			l.reads = append(l.reads, l.slots[i:]...)
			break
		}
		p := l.peers.get(slot)
		p.reading = false
		if p.open() {
			l.readPeer(slot, p)
			l.heard = append(l.heard, slot)
		}
	}
	return true
}

// readPeer handles what is left of the last read, then reads once.
func (l *Loop) readPeer(slot uint32, p *peer) {
	st := l.hub.Status(slot)
	if st.Closing {
		l.discard(slot, p)
		return
	}
	if st.Hold {
		if st.Early && p.hungUp && poll.Ended(int(p.fd)) {
			l.end(slot, p) // nobody waits for its session
		}
		return // Resumed names the slot
	}
	if l.tooMuch(slot, p) {
		return
	}
	if l.remainingShare(p) <= 0 {
		l.goOn(slot, p)
		return
	}
	if p.fed {
		p.fed = false
		if !l.take(slot, p, nil) {
			return
		}
		if l.remainingShare(p) <= 0 {
			l.goOn(slot, p)
			return
		}
	}
	if !p.readable || p.secure != nil && p.secure.full() {
		return // HandshakeMoved goes on with the latter
	}
	room := l.readRoom()
	n, err := poll.Read(int(p.fd), room)
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
	if n < len(room) && !p.hungUp {
		p.readable = false // more would be a new edge
	}
	if st.Early && p.hungUp && poll.Ended(int(p.fd)) {
		l.hub.HungUp(slot)
	}
	fresh := room[:n]
	if p.marks&fromProxy != 0 {
		var ok bool
		if fresh, ok = l.unwrap(slot, p, fresh); !ok {
			l.goOn(slot, p)
			return
		}
	}
	spent := l.spent
	goesOn := l.take(slot, p, fresh)
	if did := l.spent - spent; did < readUnits {
		l.spend(p, readUnits-did)
	}
	if goesOn {
		l.goOn(slot, p)
	}
}

// take handles what was read, or with nil what is left of before. False where reading must not go
// on now.
func (l *Loop) take(slot uint32, p *peer, fresh []byte) bool {
	if p.marks&begun == 0 && len(fresh) > 0 {
		p.marks |= begun
		if l.cfg.Handshakes != nil && fresh[0] == recordHandshake {
			l.peers.more(p).secure = l.peers.secures.Take()
			l.stats.Secure++
		}
	}
	if p.secure == nil {
		return l.takePlain(slot, p, fresh)
	}
	return l.takeSealed(slot, p, fresh)
}

// feed gives the hub whole frames and keeps the rest. False where reading must not go on now.
func (l *Loop) feed(slot uint32, p *peer, fresh []byte) bool {
	b := fresh
	if p.rest != nil {
		l.peers.put(p.rest, len(p.rest.bytes), fresh)
		b = p.rest.bytes
	}
	before, spent := l.hub.Frames(), l.hub.Spent()
	used, more := l.hub.Feed(slot, b, l.remainingShare(p))
	frames := int(l.hub.Frames() - before)
	l.spend(p, max(int(l.hub.Spent()-spent), len(fresh)/kib, 1))
	l.charge(slot, frames, len(fresh))
	if used > 0 || p.rest == nil {
		l.peers.keep(p, b[used:])
	}
	if !more || used == len(b) {
		l.refuseLargePart(slot, p)
		return true
	}
	p.fed = true
	l.countPart(slot, p)
	if !l.hub.Status(slot).Hold {
		l.goOn(slot, p)
	}
	return false
}

// discard reads what a closing connection still sends, as far as its share goes.
func (l *Loop) discard(slot uint32, p *peer) {
	l.forget(slot, p)
	for reads := 0; reads < discardReads && l.remainingShare(p) > 0; reads++ {
		n, err := poll.Read(int(p.fd), l.buf)
		if errors.Is(err, poll.ErrAgain) {
			p.readable = false
			return
		}
		read := (max(n, 0) + kib - 1) / kib
		p.discarded += uint16(read)
		if err != nil || n == 0 || p.discarded > lingerKiB {
			l.end(slot, p)
			return
		}
		l.spend(p, max(read, readUnits))
	}
	p.readable = true
	l.goOn(slot, p)
}

// sayGoodbye ends the edge's side; the peer's last bytes are read for a while, so that it gets
// ours.
func (l *Loop) sayGoodbye(slot uint32, p *peer) {
	p.shut = true
	if poll.EndWrites(int(p.fd)) != nil {
		l.end(slot, p)
		return
	}
	p.readable = true
	l.wantRead(slot, p)
}

// end begins a connection's end, which has one order: the topic table (here, and in slices where it
// is in many topics), the wheel, the poller, the descriptor, the generation. So no part ever names
// a descriptor or a slot that is already somebody else's.
func (l *Loop) end(slot uint32, p *peer) {
	if p.ending {
		return
	}
	p.ending = true
	l.peers.keep(p, nil)
	l.unweb(slot, p)
	l.unsecure(slot, p)
	l.peers.large.drop(slot)
	l.hub.Gone(slot)
}

// closes ends the sockets of connections that the hub has taken out of topics and off the wheel. It
// is a turn's last part: no send is under way.
func (l *Loop) closes() (something bool) {
	l.slots = l.hub.Over(l.slots[:0], closeBudget)
	for _, slot := range l.slots {
		p := l.peers.get(slot)
		if l.poller.Drop(int(p.fd)) != nil {
			l.stats.PollErrors++
		}
		l.leave(slot, p)
		*p = p.vacant()
		l.hub.Free(slot)
	}
	return len(l.slots) > 0
}
