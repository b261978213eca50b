package loop

import (
	"math"
	"time"
)

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

// What else is charged to a share, in the same units, which are about a microsecond each.
const (
	// readUnits is the least that one read of a socket counts for, however little it brings.
	readUnits = 2
	// recordUnits of a TLS record that is opened, beside the frames and KiB in it (BenchmarkOpen:
	// 0.6 to 0.8 µs with a byte, 7 to 11 µs with 16 KiB).
	recordUnits = 1
	// emptyRecordUnits of one without data: a new key is derived, and answered with another
	// (BenchmarkOpenKeyUpdate: 10 to 12 µs).
	emptyRecordUnits = 10
)

// Who has used its share, and has more, waits for one of the next periods: so many such connections
// go on in a period, which is a quarter of it, or fewer where messages wait to be delivered. None
// is put off for more than about longestWait periods for the sake of others.
const (
	floods      = 4
	floodsBusy  = 2
	longestWait = 64
)

// remainingShare is what the connection has of its share. What it took beyond it is taken off the
// next ones.
func (l *Loop) remainingShare(p *peer) int {
	if n := l.period - p.period; n > 0 {
		p.spent -= uint8(min(int(p.spent), int(n)*share))
		p.period = l.period
	}
	return share - int(p.spent)
}

// spend takes n off its share.
func (l *Loop) spend(p *peer, n int) {
	l.spent += n
	p.spent = uint8(min(int(p.spent)+n, math.MaxUint8))
}

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

// release goes on with those that were put off for longest; the others wait for the next period.
func (l *Loop) release() {
	n := floods
	if l.deliveries() {
		n = floodsBusy
	}
	n = min(max(n, len(l.deferred)/longestWait), len(l.deferred))
	l.goOnWith(l.deferred[:n])
	if l.deferred = l.deferred[:copy(l.deferred, l.deferred[n:])]; len(l.deferred) > 0 {
		l.setAlarm()
	}
}

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
