package loop

import "github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"

// path asks the kernel about a connection, once for each of its heartbeats.
func (l *Loop) path(slot uint32) linkhealth.Path {
	us, unsent := l.info.Path(int(l.peers.get(slot).fd))
	return linkhealth.Path{RTT: us, Unsent: unsent}
}

// heed tells the hub where the loop is late with the tick that was due when the turn began, whether
// it has come now or is still behind other events.
func (l *Loop) heed(due int64) {
	if due != 0 && l.clock.at-due > int64(linkhealth.TooLate) {
		l.hub.Late()
	}
}
