package loop

import (
	"math"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// Each connection has a share of its loop: as many frames and as many KiB in a millisecond, and a
// frame that causes more work than a short one counts for as many as that takes. Without that, one
// that floods would have its loop handle frames on a whole core, and its neighbours wait for a loop
// that never sleeps. Who has used its share is not read for the rest of the millisecond, or for
// longer beside live messages: then its socket fills, and TCP holds its client back.
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

// Who has used its share, and has more, waits for one of the next periods. On a loop that is quiet
// it is the next one, for all of them. Beside live messages so many go on in a period, which is a
// quarter of it, or fewer where messages wait to be delivered: addresses take turns, with one
// connection each. As many go on in any case that all would within about longestWait periods.
const (
	floods      = 4
	floodsBusy  = 2
	longestWait = 64
	// quietAfter so long without a live message a loop is quiet.
	quietAfter = int64(100 * time.Millisecond)
	// looksPerPlace bounds how many are looked at in a period for each that may go on: who still
	// owes some of a share takes no place.
	looksPerPlace = 4
)

// putOff is who has used its share. The zero value is ready.
type putOff struct {
	fresh   []handle // since the last release
	turns   walk.Turns[payer, waiting]
	quietAt int64 // when the loop is quiet, if no live message comes before
	alarmAt int64 // when the next period begins; 0: nobody waits for it
}

// payer takes turns with others: an address, or where that is exempt a connection.
type payer struct {
	address string
	slot    uint32 // where there is no address
}

type waiting struct {
	payer
	at handle
}

// handle is a connection that is not read for a while, by its slot and generation: one that is in
// the same slot later does not wait in its place.
type handle struct{ slot, gen uint32 }

// stillOpen is the connection's peer; nil: it is over.
func (l *Loop) stillOpen(at handle) *peer {
	if p := l.peers.get(at.slot); p.open() && p.gen == at.gen {
		return p
	}
	return nil
}

// any reports whether somebody waits for a next period.
func (o *putOff) any() bool { return len(o.fresh) > 0 || o.turns.Len() > 0 }

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
	l.off.fresh = append(l.off.fresh, handle{slot, p.gen})
	l.setAlarm()
}

// quiet reports whether no live message was taken for a while, and none waits.
func (l *Loop) quiet() bool { return l.now() >= l.off.quietAt && !l.deliveries() }

// release goes on with all that were put off, or with those whose turn it is; the others wait for
// the next period.
func (l *Loop) release() {
	if l.quiet() {
		l.off.fresh = l.goOnWith(l.off.fresh)
		for w, ok := l.off.turns.Pop(); ok; w, ok = l.off.turns.Pop() {
			l.goOnAt(w.at)
		}
		return
	}
	l.lineUp()
	places := floods
	if l.deliveries() {
		places = floodsBusy
	}
	places = max(places, l.off.turns.Len()/longestWait)
	l.period = l.periodAt(l.now())
	for looks := looksPerPlace * places; looks > 0 && places > 0; looks-- {
		w, ok := l.off.turns.Pop()
		if !ok {
			return
		}
		if p := l.stillOpen(w.at); p != nil && l.remainingShare(p) <= 0 {
			l.off.turns.Push(w.payer, w)
		} else if l.goOnAt(w.at) {
			places--
		}
	}
	if l.off.any() {
		l.setAlarm()
	}
}

// lineUp has those that were put off since the last release take turns with others.
func (l *Loop) lineUp() {
	for _, at := range l.off.fresh {
		if l.stillOpen(at) == nil {
			continue
		}
		w := waiting{payer{address: l.partOrigin(at.slot)}, at}
		if w.address == "" {
			w.payer.slot = at.slot
		}
		l.off.turns.Push(w.payer, w)
	}
	l.off.fresh = l.off.fresh[:0]
}

// goOnWith has connections read again.
func (l *Loop) goOnWith(all []handle) []handle {
	for _, at := range all {
		l.goOnAt(at)
	}
	return all[:0]
}

// goOnAt has a connection read again, and reports whether it is: it may have ended meanwhile, or
// have nothing to read.
func (l *Loop) goOnAt(at handle) bool {
	p := l.stillOpen(at)
	if p == nil {
		return false
	}
	p.deferred = false
	if !p.readable && !p.fed {
		return false
	}
	l.wantRead(at.slot, p)
	return true
}

// setAlarm has the loop turn as soon as the next period has begun, and release what was put off.
// One that is set already stays, also where it has gone off and was not looked at yet.
func (l *Loop) setAlarm() {
	if l.off.alarmAt > 0 {
		return
	}
	now := l.now()
	after := period - now%period
	if l.poller.SetAlarm(after) != nil {
		l.stats.PollErrors++
		return
	}
	l.off.alarmAt = now + after
}

// heedAlarm goes by the clock: what the poller says of an alarm may be of one before.
func (l *Loop) heedAlarm() {
	if l.off.alarmAt > 0 && l.now() >= l.off.alarmAt {
		l.off.alarmAt = 0
		l.release()
	}
}
