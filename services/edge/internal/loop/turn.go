package loop

import (
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/hub"
	"github.com/pushmesh/pushmesh/services/edge/internal/poll"
)

// Budgets of one turn. What is left over waits for the next one, which then does not block.
const (
	pollEvents   = 512
	acceptBudget = 64
	readBudget   = 256 // connections
	mailBudget   = 1024
	workBudget   = 16384 // deliveries or about as much
	tickBudget   = 512   // connections
	// flushBudget, of connections beside those that were read. Where there is more to send than the kernel takes, a connection gets
	// workBudget/flushBudget messages with a write.
	flushBudget = 256
	feedBudget  = 512 // frames of one connection
	readSize    = 64 << 10
)

// Slots of descriptors that are no connection.
const (
	slotListener = ^uint32(0) - iota
	slotWaker
	slotTicker
)

// loopState belongs to the loop's own goroutine.
type loopState struct {
	hub     *hub.Hub
	stats   Stats
	peers   peers
	buf     []byte    // what is read, for all connections
	bufs    [][]byte  // of the batch
	batch   []sending // what the sender was given
	events  []poll.Event
	mail    []exchange.Event
	mailAt  int
	reads   []uint32 // slots with something to read
	flushes []uint32 // slots with something to write
	heard   []uint32 // slots read in this turn
	slots   []uint32
	accepts bool // the listener may have connections
	swept   bool // the loop drains: the listener is looked at once more
	deaf    bool // the listener is closed
	tickDue int64
	ticked  bool
	ticks   bool // more timers are due
}

// run turns until Stop.
func (l *Loop) run() {
	busy := false
	for !l.stop.Load() {
		busy = l.turn(busy)
	}
	for slot := range l.peers.len() {
		if p := l.peers.get(slot); p.fd >= 0 {
			poll.Close(p.fd)
		}
	}
	l.publishStats()
	if l.sender.Close() != nil {
		l.stats.PollErrors++
	}
}

// turn is one round, in this order: poll, reads, mailbox, timers, flush, closes. It says whether something was left over.
func (l *Loop) turn(busy bool) (more bool) {
	l.poll(busy)
	l.setTime()
	l.accept()
	l.read()
	l.takeMail()
	l.hub.Work(workBudget)
	l.timers()
	l.resume()
	l.setTime() // ACK timers start when bytes leave, not when the turn began
	l.flush()
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
	return l.hub.Busy() || l.accepts || l.ticks || len(l.reads) > 0 || len(l.flushes) > 0 || l.mailAt < len(l.mail) || !l.box.Empty()
}

func (l *Loop) setTime() {
	now := time.Now()
	l.hub.SetTime(int64(now.Sub(l.started)), uint64(now.UnixMicro()))
	l.lastTurn.Store(now.UnixNano())
}

// poll notes what has happened to descriptors.
func (l *Loop) poll(busy bool) {
	var err error
	if l.events, err = l.poller.Wait(l.events[:0], busy); err != nil {
		l.stats.PollErrors++
		return
	}
	for i := range l.events {
		switch e := &l.events[i]; e.Slot {
		case slotListener:
			l.accepts = !l.deaf
		case slotWaker:
		case slotTicker:
			l.tick()
		default:
			l.happened(e)
		}
	}
}

// tick samples the lag: from when the tick was due to now.
func (l *Loop) tick() {
	_, _ = poll.Read(l.ticker, l.buf[:8]) // reading it arms the timer again
	now := l.now()
	l.stats.Lag.add(time.Duration(now - l.tickDue))
	for l.tickDue <= now {
		l.tickDue += int64(hub.Tick)
	}
	l.ticked = true
	l.accepts = l.accepts || !l.deaf && l.stats.AcceptFull > 0
}

func (l *Loop) happened(e *poll.Event) {
	p := l.peers.get(e.Slot)
	if p == nil || p.fd < 0 || p.gen != e.Gen {
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
		l.wantFlush(e.Slot, p)
	}
}

func (l *Loop) accept() {
	for n := 0; l.accepts && n < acceptBudget; n++ {
		fd, err := poll.Accept(l.listener)
		if err != nil {
			l.accepts = false
			if errors.Is(err, poll.ErrFull) {
				l.stats.AcceptFull++ // the next tick tries again
			}
			return
		}
		l.stats.Accepts++
		slot, gen := l.hub.Open()
		p := l.peers.make(slot)
		*p = peer{fd: fd, gen: gen, writable: true}
		if err := l.poller.Add(fd, slot, gen); err != nil {
			l.stats.PollErrors++
			l.end(slot, p)
		}
	}
}

// takeMail gives the hub what others have sent.
func (l *Loop) takeMail() {
	if l.mailAt == len(l.mail) {
		clear(l.mail)
		l.mail, l.mailAt = l.box.Take(l.mail[:0]), 0
	}
	for n := 0; n < mailBudget && l.mailAt < len(l.mail); n++ {
		l.hub.Event(l.mail[l.mailAt])
		l.mail[l.mailAt] = nil
		l.mailAt++
	}
}

func (l *Loop) timers() {
	if l.ticked || l.ticks {
		l.ticks = l.hub.Tick(tickBudget)
	}
}

// resume goes on with connections whose reading had to wait.
func (l *Loop) resume() {
	l.slots = l.hub.Resumed(l.slots[:0])
	for _, slot := range l.slots {
		if p := l.peers.get(slot); p != nil && p.fd >= 0 {
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
	poll.Close(l.listener)
	l.listener = -1
}
