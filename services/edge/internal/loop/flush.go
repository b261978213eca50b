package loop

import (
	"errors"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// sending is a connection of the batch in hand.
type sending struct {
	slot uint32
	owed bool // its bytes were given to the sender
	// Of a connection with TLS: what the sender was given, and whether it was sealed just now.
	sealed []byte
	fresh  bool
	// Of a WebSocket without TLS: the same, a message in pieces, or what was left of one. The
	// pieces are the hub's, and good until the first of the batch is settled.
	pieces [][]byte
	left   []byte
	frames int // bytes of frames in sealed or pieces
}

// flush sends what is owed to connections, one send each, and ends those that are done. Who was
// read in this turn comes first, so that no answer waits for a broadcast, then who has a long
// queue, which may overflow; the others take their turns.
func (l *Loop) flush() (something bool) {
	l.slots = l.hub.Dirty(l.slots[:0])
	for _, slot := range l.slots {
		if p := l.peers.get(slot); p.open() {
			l.wantFlush(slot, p)
		}
	}
	l.slots = l.slots[:0]
	for _, slot := range l.heard {
		l.peers.get(slot).flushing = true
		l.slots = append(l.slots, slot)
	}
	l.heard = l.heard[:0]
	l.slots = l.hub.Deep(l.slots) // not more than workBudget/128
	n := min(len(l.flushes), flushBudget)
	l.slots = append(l.slots, l.flushes[:n]...)
	l.flushes = l.flushes[:copy(l.flushes, l.flushes[n:])]
	l.arena, l.heads, l.copied = l.arena[:0], l.heads[:0], 0
	for slots := l.slots; len(slots) > 0; {
		slots = slots[l.gather(slots):]
		l.settle(l.sender.Flush())
	}
	l.flushLater()
	l.texts.rest(l.clock.at)
	return len(l.slots) > 0
}

// gather gives the sender what connections are owed, as many as it takes, and says how many it has
// looked at. Until the sender has flushed nothing else is done with the hub. A slot may come twice:
// the second time it is not flushing any more.
func (l *Loop) gather(slots []uint32) (n int) {
	for ; n < len(slots) && !l.sender.Full() && l.given < webBatch; n++ {
		p := l.peers.get(slots[n])
		if !p.flushing {
			continue
		}
		p.flushing = false
		if !p.open() {
			continue
		}
		if p.secure != nil {
			l.gatherSealed(slots[n], p)
			continue
		}
		if p.marks&isWeb != 0 {
			l.gatherWeb(slots[n], p)
			continue
		}
		owed := p.writable && l.hub.Status(slots[n]).Owes
		if owed {
			at := len(l.bufs)
			l.bufs = l.hub.Gather(slots[n], l.bufs, 0)
			if owed = len(l.bufs) > at; owed { // else it has expired
				l.sender.Add(int(p.fd), l.bufs[at:])
			}
		}
		l.batch = append(l.batch, sending{slot: slots[n], owed: owed})
	}
	return n
}

// settle tells the hub what has left, and ends those that are done.
func (l *Loop) settle(results []poll.Result) {
	l.keepRests(results)
	for _, b := range l.batch {
		p := l.peers.get(b.slot)
		if b.owed {
			r := results[0]
			results = results[1:]
			if !l.sent(&b, p, r) {
				l.end(b.slot, p)
				continue
			}
		}
		st := l.hub.Status(b.slot)
		owes := p.owes(st.Owes)
		switch {
		case st.Overdue:
			l.reset(b.slot, p)
		case owes && p.writable:
			l.wantFlush(b.slot, p)
		case st.Closing && !owes && !p.shut && l.saidBye(b.slot, p):
			l.sayGoodbye(b.slot, p)
		}
	}
	clear(l.batch)
	l.batch = l.batch[:0]
	clear(l.bufs)
	l.bufs = l.bufs[:0]
}

// sent takes the result of one send; false where the socket is broken.
func (l *Loop) sent(b *sending, p *peer, r poll.Result) bool {
	l.stats.Writes++
	if r.Err != nil {
		if p.writable = false; !errors.Is(r.Err, poll.ErrAgain) {
			return false
		}
		l.poller.Stuck(int(p.fd)) // it says when there is room
		if p.secure != nil {
			l.sentSealed(b, p, 0)
		}
		l.hub.Stalled(b.slot, l.held(p))
		l.watchStalled(b.slot, p)
		return true
	}
	l.stats.WriteBytes += uint64(r.N)
	switch {
	case p.secure != nil:
		l.sentSealed(b, p, r.N)
	case p.marks&isWeb != 0:
		l.sentWeb(b, p, r.N)
	default:
		l.hub.Wrote(b.slot, r.N)
	}
	return true
}

// owes reports whether something may be sent: frames of the hub's queue, or what was made of them.
func (p *peer) owes(frames bool) bool {
	if p.marks&isWeb != 0 {
		frames = p.web.owes(frames)
	}
	if p.secure != nil {
		return p.secure.owes(frames)
	}
	return frames
}
