// Package netpoll is the poll.Poller for systems without epoll: Go's own poller waits for sockets,
// with a small goroutine for each. Reads, sends and all state stay with the loop. It is slower,
// costs some KiB for a connection, and takes a lock for a few instructions where epoll's takes
// none.
package netpoll

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// Poller is one loop's. Its listener is shared with the other loops of the edge.
type Poller struct {
	door  *door
	most  int // events at a time
	conns map[int]*conn
	alarm *time.Timer
	clock sync.WaitGroup // the ticker's goroutine
	ended chan struct{}
	woken chan struct{} // holds one where something has happened since the last Events

	// The door's lock guards these.
	callers []caller // accepted, and dealt to this loop
	left    bool

	mu      sync.Mutex
	ready   []*conn
	signals [signals]bool
	closed  bool
}

// signal is an event that is of no connection.
type signal uint8

const (
	called signal = iota // the door has somebody
	woke
	ticked
	rang
	signals
)

var slotOf = [signals]uint32{called: poll.SlotListener, woke: poll.SlotWaker, ticked: poll.SlotTicker, rang: poll.SlotAlarm}

// Open makes n pollers that share a listener at addr, and take up to so many events at a time.
func Open(addr string, b poll.Buffers, n, events int) ([]poll.Poller, error) {
	d, err := newDoor(addr, b)
	if err != nil {
		return nil, err
	}
	all := make([]poll.Poller, n)
	for i := range all {
		p := &Poller{door: d, most: events, conns: map[int]*conn{}, ended: make(chan struct{}), woken: make(chan struct{}, 1)}
		p.alarm = time.AfterFunc(time.Hour, func() { p.signal(rang) })
		p.alarm.Stop()
		all[i] = p
	}
	d.users = n
	return all, nil
}

// Addr implements poll.Poller.
func (p *Poller) Addr() netip.AddrPort { return p.door.addr }

// Listen implements poll.Poller.
func (p *Poller) Listen() error { return p.door.enter(p) }

// Accept implements poll.Poller.
func (p *Poller) Accept() (fd int, from netip.Addr, err error) { return p.door.accept(p) }

// Deafen implements poll.Poller.
func (p *Poller) Deafen() { p.door.leave(p) }

// Tick implements poll.Poller.
func (p *Poller) Tick(period time.Duration) error {
	clock := time.NewTicker(period)
	p.clock.Go(func() {
		pprof.SetGoroutineLabels(labels("edge-ticker"))
		defer clock.Stop()
		for {
			select {
			case <-clock.C:
				p.signal(ticked)
			case <-p.ended:
				return
			}
		}
	})
	return nil
}

func labels(goroutine string) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("goroutine", goroutine))
}

// SetAlarm implements poll.Poller.
func (p *Poller) SetAlarm(after int64) error {
	p.alarm.Reset(time.Duration(after))
	return nil
}

// Wake implements poll.Poller.
func (p *Poller) Wake() { p.signal(woke) }

func (p *Poller) signal(s signal) {
	p.mu.Lock()
	p.signals[s] = true
	p.mu.Unlock()
	p.wake()
}

// wake has Run go on, now or when it parks next.
func (p *Poller) wake() {
	select {
	case p.woken <- struct{}{}:
	default: // it will anyway
	}
}

// Run implements poll.Poller.
func (p *Poller) Run(turn func() poll.Next) error {
	for {
		switch turn() {
		case poll.End:
			return nil
		case poll.Again:
			runtime.Gosched() // the goroutines that watch sockets may need this processor
		case poll.Park:
			<-p.woken
		}
	}
}

// Events implements poll.Poller.
func (p *Poller) Events(dst []poll.Event) (all []poll.Event, full bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, is := range p.signals {
		if is {
			dst = append(dst, poll.Event{Slot: slotOf[s], Readable: true})
		}
	}
	p.signals = [signals]bool{}
	n := min(len(p.ready), p.most)
	for _, c := range p.ready[:n] {
		if !c.dropped {
			dst = append(dst, c.event())
		}
		c.news = news{}
	}
	left := copy(p.ready, p.ready[n:])
	clear(p.ready[left:])
	p.ready = p.ready[:left]
	return dst, left > 0, nil
}

// Close ends the poller, its part of the listener, and the connections that are left.
func (p *Poller) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	p.Deafen()
	p.alarm.Stop()
	close(p.ended)
	p.clock.Wait()
	var errs []error
	for fd := range p.conns {
		errs = append(errs, p.Drop(fd))
	}
	return errors.Join(errs...)
}

// closeFD closes what no os.File has.
func closeFD(fd int) { _ = unix.Close(fd) }
