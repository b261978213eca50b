package loop

import (
	"github.com/pushmesh/pushmesh/services/edge/internal/delivery"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// measureBudget is how many stuck sockets are measured in a tick: one call of the kernel each.
const measureBudget = 64

// held is what the kernel has for a socket, and how much its peer has acknowledged: a slow client
// moves that, though the kernel takes nothing more for it.
func (l *Loop) held(p *peer) delivery.Held {
	return delivery.Held{Memory: poll.Held(int(p.fd)), Taken: l.info.Taken(int(p.fd))}
}

// watchStuck has a socket measured again, in turns with others, for as long as the kernel takes
// nothing for it.
func (l *Loop) watchStuck(slot uint32, p *peer) {
	if !p.stuck {
		p.stuck = true
		l.stuck = append(l.stuck, slot)
	}
}

// measure tells the hub what the kernel holds by now for some of the sockets that are stuck, and
// forgets those that are not.
func (l *Loop) measure() {
	for range min(len(l.stuck), measureBudget) {
		if l.stuckAt >= len(l.stuck) {
			l.stuckAt = 0
		}
		slot := l.stuck[l.stuckAt]
		if p := l.peers.get(slot); p.open() && !p.writable {
			l.hub.Stalled(slot, l.held(p))
			l.stuckAt++
			continue
		}
		l.peers.get(slot).stuck = false
		last := len(l.stuck) - 1
		l.stuck[l.stuckAt] = l.stuck[last]
		l.stuck = l.stuck[:last]
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
