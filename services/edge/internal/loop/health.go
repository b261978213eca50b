package loop

import "github.com/pushmesh/pushmesh/services/edge/internal/rtt"

// path asks the kernel about a connection, once for each of its heartbeats.
func (l *Loop) path(slot uint32) rtt.Path {
	us, unsent := l.info.Path(int(l.peers.get(slot).fd))
	return rtt.Path{RTT: us, Unsent: unsent}
}

// heed tells the hub where the loop is late with the tick that was due when the turn began, whether
// it has come now or is still behind other events.
func (l *Loop) heed(due int64) {
	if due != 0 && l.clock.at-due > int64(rtt.TooLate) {
		l.hub.Late()
	}
}
