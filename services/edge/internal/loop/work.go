package loop

import "time"

// partTime is about how long the hub may work in a turn, and how long connections may be read, or
// half as long where messages wait to be delivered: whoever sent a Ping meanwhile waits for the
// rest of this turn and for the next one. Caches that are warm do workBudget in that time; what a
// large fan-out finds in memory takes several times as long.
const partTime = 500 * time.Microsecond

const (
	// workSlice is what the hub does between looks at the clock.
	workSlice = 512
	// readSlice is how many connections are read between looks at the clock.
	readSlice = 4
	// mailSlice is how many events are taken between looks at the clock.
	mailSlice = 128
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

// readTime is how long connections may be read in this turn.
func (l *Loop) readTime() time.Duration {
	if l.deliveries() {
		return l.partTime / 2
	}
	return l.partTime
}

// deliveries reports whether messages wait to be delivered, or to be sent.
func (l *Loop) deliveries() bool {
	return l.hub.Queued() || len(l.flushes) > 0 || l.mailAt < len(l.mail) || !l.box.Empty()
}

// partTimeUp says that a part of the turn that began then has had its time.
func (l *Loop) partTimeUp(began int64) bool { return l.timeUp(began, l.partTime) }

// timeUp says that a part that began then has had so much time.
func (l *Loop) timeUp(began int64, most time.Duration) bool { return l.now()-began >= int64(most) }
