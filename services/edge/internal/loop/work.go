package loop

import "time"

// partTime is about how long the hub may work in a turn, and how long connections may be read:
// whoever sent a Ping meanwhile waits for the rest of this turn and for the next one. Caches that
// are warm do workBudget in that time; what a large fan-out finds in memory takes several times as
// long.
const partTime = 500 * time.Microsecond

const (
	// workSlice is what the hub does between looks at the clock.
	workSlice = 512
	// readSlice is how many connections are read between looks at the clock.
	readSlice = 4
)

// work has the hub go on with what waits in its queues.
func (l *Loop) work() (something bool) {
	if l.hub.Paced() {
		l.setAlarm()
	}
	if !l.hub.Queued() {
		return false
	}
	began := l.clock.at
	for left := workBudget; left > 0 && l.hub.Work(min(left, workSlice)) && !l.partTimeUp(began); {
		left -= workSlice
	}
	if l.hub.Paced() {
		l.setAlarm()
	}
	return true
}

// partTimeUp says that a part of the turn that began then has had its time.
func (l *Loop) partTimeUp(began int64) bool { return l.now()-began >= int64(l.partTime) }
