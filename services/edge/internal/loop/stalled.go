package loop

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// measureBudget is how many stalled sockets are measured in a tick: one call of the kernel each.
const measureBudget = 64

// held is what the kernel has for a socket, and how much its peer has acknowledged: a slow client
// moves that, though the kernel takes nothing more for it.
func (l *Loop) held(p *peer) delivery.Held {
	return delivery.Held{Memory: poll.Held(int(p.fd)), Taken: l.info.Taken(int(p.fd))}
}

// watchStalled has a socket measured again, in turns with others, for as long as the kernel takes
// nothing for it.
func (l *Loop) watchStalled(slot uint32, p *peer) {
	if !p.stalled {
		p.stalled = true
		l.stalled = append(l.stalled, slot)
	}
}

// measure tells the hub what the kernel holds by now for some of the sockets that are stalled, and
// forgets those that are not.
func (l *Loop) measure() {
	for range min(len(l.stalled), measureBudget) {
		if l.stalledAt >= len(l.stalled) {
			l.stalledAt = 0
		}
		slot := l.stalled[l.stalledAt]
		if p := l.peers.get(slot); p.open() && !p.writable {
			l.hub.Stalled(slot, l.held(p))
			l.stalledAt++
			continue
		}
		l.peers.get(slot).stalled = false
		last := len(l.stalled) - 1
		l.stalled[l.stalledAt] = l.stalled[last]
		l.stalled = l.stalled[:last]
		if last == 0 {
			return
		}
	}
}

// reset ends a connection whose peer has not taken its last words in time: the kernel forgets them
// too.
func (l *Loop) reset(slot uint32, p *peer) {
	if poll.Reset(int(p.fd)) != nil {
		l.stats.PollErrors++
	}
	l.end(slot, p)
}
