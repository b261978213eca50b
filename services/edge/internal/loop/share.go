package loop

import "time"

// Each connection has a share of its loop: as many frames and as many KiB in a millisecond, and a
// frame that causes more work than a short one counts for as many as that takes. Without that, one
// that floods would have its loop handle frames on a whole core, and its neighbours wait for a loop
// that never sleeps. Who has used its share is not read for the rest of the millisecond: then its
// socket fills, and TCP holds its client back.
const (
	share  = feedBudget
	period = int64(time.Millisecond)
	kib    = 1 << 10
)

// periodAt numbers periods; numbers come again after a minute, which at worst has a connection wait
// for one.
func periodAt(now int64) uint16 { return uint16(now / period) }

// remainingShare is what the connection has of its share.
func (l *Loop) remainingShare(p *peer) int {
	if p.period != l.period {
		p.period, p.spent = l.period, 0
	}
	return share - int(p.spent)
}

// spend takes n off its share, of which there is something left.
func (l *Loop) spend(p *peer, n int) { p.spent += uint8(min(n, share)) }

// goOn has a connection read in the next turn, where there may be more of it, or in the next
// period. What happens to its socket meanwhile is noted, as ever.
func (l *Loop) goOn(slot uint32, p *peer) {
	switch {
	case p.deferred || !p.readable && !p.fed:
		return
	case l.remainingShare(p) > 0:
		l.wantRead(slot, p)
		return
	}
	p.deferred = true
	l.stats.Deferred++
	if l.deferred = append(l.deferred, slot); len(l.deferred) == 1 {
		l.setAlarm()
	}
}

// release goes on with those that were put off.
func (l *Loop) release() { l.deferred = l.goOnWith(l.deferred) }

// goOnWith has connections read again. One that has ended meanwhile, or whose slot is another's
// now, finds nothing to read.
func (l *Loop) goOnWith(slots []uint32) []uint32 {
	for _, slot := range slots {
		p := l.peers.get(slot)
		p.deferred = false
		if p.open() && (p.readable || p.fed) {
			l.wantRead(slot, p)
		}
	}
	return slots[:0]
}

// setAlarm has release called as soon as the next period has begun.
func (l *Loop) setAlarm() {
	if l.poller.SetAlarm(period-l.now()%period) != nil {
		l.stats.PollErrors++
	}
}
