package loop

import (
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/delivery"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// A turn's parts come in one order, each with a budget: poll (events, then connections to accept),
// reads, mailbox and what waits in the hub, timers, flush, closes. What is left over waits for the
// next turn, which then does not wait.
const (
	pollEvents   = 512
	acceptBudget = 64
	readBudget   = 256   // connections, if partTime allows
	mailBudget   = 1024  // deliveries or about as much, if partTime allows
	joinsBudget  = 256   // of them answers to Subscribes that don't let others go first
	joinsLeast   = 64    // of those that did
	workBudget   = 16384 // deliveries or about as much, if partTime allows
	tickBudget   = 512   // connections
	// flushBudget, of connections beside those that were read. Where there is more to send than the
	// kernel takes, a connection gets workBudget/flushBudget messages with a write.
	flushBudget = 128
	// feedBudget, of frames of one connection, or of what is about as much: one that floods makes a
	// turn some ten microseconds longer, and not every turn (share.go).
	feedBudget  = 64
	closeBudget = 64 // sockets: closing one may take the kernel 10 µs
	readSize    = 64 << 10
)

// loopState belongs to the loop's own goroutine.
type loopState struct {
	hub   *delivery.Hub
	stats Stats
	// partTime of a turn; tests set what they need, and when a period begins.
	partTime time.Duration
	periodAt func(now int64) uint16

	peers  peers
	paces  slab.Slab[pace]   // by slot, where there are rates
	paused []handle          // who is not read before the next tick
	places slab.Slab[uint32] // of connections that count for their address, by slot
	clock  clock
	shed   shed
	info   poll.Info
	buf    []byte   // what is read, for all connections
	bufs   [][]byte // of the batch
	sealer
	messages
	texts     texts
	native    [][]byte  // what the hub has gathered for one whose messages are JSON
	batch     []sending // what the sender was given
	events    []poll.Event
	polls     bool // the poller may have more events
	mail      []exchange.Event
	mailAt    int
	joins     walk.FIFO[exchange.Event] // exchange.Joined that were taken and let others go first
	reads     []uint32                  // slots with something to read
	off       putOff                    // who is not read before one of the next periods
	period    uint16                    // the present one, as of the last reads
	spent     int                       // of shares, in all
	flushes   []uint32                  // slots with something to write
	heard     []uint32                  // slots read in this turn
	stalled   []uint32                  // slots that the kernel took nothing for
	stalledAt int                       // of those, measured next
	slots     []uint32
	accepts   bool // the listener may have connections
	waits     bool // the next tick looks at the listener again
	turned    int  // connections that were refused and are not closed yet
	swept     bool // the loop drains: the listener is looked at once more
	deaf      bool // the listener is closed
	tickDue   int64
	ticked    bool
	ticks     bool // more timers are due
}

// run turns until Stop.
func (l *Loop) run() {
	err := l.poller.Run(func() poll.Next {
		switch {
		case l.stop.Load():
			return poll.End
		case l.turn():
			return poll.Again
		}
		return poll.Park
	})
	if err != nil {
		l.stats.PollErrors++
	}
	for slot := range l.peers.len() {
		if p := l.peers.get(slot); p.fd >= 0 {
			if l.poller.Drop(int(p.fd)) != nil {
				l.stats.PollErrors++
			}
		}
	}
	l.publishStats()
	if l.sender.Close() != nil {
		l.stats.PollErrors++
	}
}

// turn is one round, in this order: poll, reads, mailbox, timers, flush, closes. It reports whether
// something was left over.
func (l *Loop) turn() (more bool) {
	l.begins()
	due := l.tickDue
	l.poll()
	l.setTime(partPoll)
	l.heed(due)
	l.did(partAccept, l.accept())
	l.did(partRead, l.read())
	l.did(partMail, l.takeMail())
	l.did(partWork, l.work())
	l.hub.Relieve()
	l.timers()
	l.resume()
	l.setTime(partTimers) // ACK timers start when bytes leave, not when the turn began
	l.did(partFlush, l.flush())
	l.did(partCloses, l.closes())
	if l.hub.Draining() && !l.deaf {
		l.stopListening()
	}
	l.hub.Drained()
	if l.ticked {
		l.ticked = false
		l.publishStats()
	}
	l.stats.Turns++
	// Asked last: what was flushed may have opened a window or a queue.
	l.clock.goes = l.polls || l.hub.Busy() || l.accepts || l.ticks || len(l.reads) > 0 || len(l.flushes) > 0 || l.mailAt < len(l.mail) || l.joins.Len() > 0 || !l.box.Empty()
	return l.clock.goes
}

// setTime tells the hub what time it is, where a part of the turn is over.
func (l *Loop) setTime(part string) {
	now := time.Now()
	mono := int64(now.Sub(l.started))
	l.hub.SetTime(mono, uint64(l.cfg.Clock(now).UnixMicro()))
	l.lastTurn.Store(mono)
	l.clock.took(part, mono)
}

// poll notes what has happened to descriptors.
func (l *Loop) poll() {
	var err error
	if l.events, l.polls, err = l.poller.Events(l.events[:0]); err != nil {
		l.stats.PollErrors++
		return
	}
	for i := range l.events {
		switch e := &l.events[i]; e.Slot {
		case poll.SlotListener:
			l.accepts = !l.deaf && !l.waits
		case poll.SlotWaker, poll.SlotAlarm:
		case poll.SlotTicker:
			l.tick()
		default:
			l.happened(e)
		}
	}
	l.heedAlarm()
}

// tick samples the lag: from when the tick was due to now.
func (l *Loop) tick() {
	now := l.now()
	l.sample(time.Duration(now - l.tickDue))
	for l.tickDue <= now {
		l.tickDue += int64(delivery.Tick)
	}
	l.ticked = true
	l.measure()
	l.acceptAgain()
	l.unpause()
}

func (l *Loop) happened(e *poll.Event) {
	p := l.peers.get(e.Slot)
	if p == nil || !p.open() || p.gen != e.Gen {
		l.stats.StaleEvents++
		return
	}
	if e.Broken {
		l.end(e.Slot, p)
		return
	}
	p.hungUp = p.hungUp || e.HungUp
	if e.Readable || e.HungUp {
		p.readable = true
		l.wantRead(e.Slot, p)
	}
	if e.Writable && !p.writable {
		p.writable = true
		l.hub.StallEnded(e.Slot)
		l.wantFlush(e.Slot, p)
	}
}

// takeMail gives the hub what others have sent. Answers to Subscribes come in bursts, of all that
// were asked while an announcement was under way: beyond some of them, those of topics let go first
// what is behind them, messages above all (see exchange.Joined).
func (l *Loop) takeMail() (something bool) {
	if l.mailAt == len(l.mail) {
		clear(l.mail)
		l.mail, l.mailAt = l.box.Take(l.mail[:0]), 0
	}
	began, joins, passed := l.clock.at, 0, 0
	for n := 0; n < mailBudget && l.mailAt < len(l.mail) && (l.mailAt%mailSlice > 0 || n == 0 || !l.partTimeUp(began)); {
		something = true
		switch e := l.mail[l.mailAt].(type) {
		case exchange.HandshakeMoved:
			l.shaken(e.Conn)
			n += shakenCost
		case exchange.Joined:
			if joins++; e.Exact && (joins > joinsBudget || l.joins.Len() > 0) {
				l.joins.Push(l.mail[l.mailAt])
				if passed++; passed%walk.ItemsPerUnit == 0 {
					n++
				}
				break
			}
			n += l.hub.Event(e)
		case exchange.Live:
			l.off.quietAt = l.clock.at + quietAfter
			n += l.hub.Event(e)
		default:
			n += l.hub.Event(e)
		}
		l.mail[l.mailAt] = nil
		l.mailAt++
	}
	for n := min(joins-passed, joinsBudget-joinsLeast); n < joinsBudget && l.joins.Len() > 0; {
		something = true
		e, _ := l.joins.Pop()
		n += l.hub.Event(e)
	}
	return something
}

func (l *Loop) timers() {
	if l.ticked || l.ticks {
		l.ticks = l.hub.Tick(tickBudget)
	}
	l.ping() // also whom a late Welcome finds silent: in this turn, as long as the slot is its own
}

// resume goes on with connections whose reading had to wait.
func (l *Loop) resume() {
	l.slots = l.hub.Resumed(l.slots[:0])
	for _, slot := range l.slots {
		if p := l.peers.get(slot); p != nil && p.open() {
			p.fed = true
			l.wantRead(slot, p)
		}
	}
}

// stopListening closes the listener once those are told that the kernel has accepted already.
func (l *Loop) stopListening() {
	if !l.swept {
		l.swept, l.accepts = true, true
	}
	if l.accepts {
		return // the next turn takes them
	}
	l.deaf = true
	l.poller.Deafen()
}
