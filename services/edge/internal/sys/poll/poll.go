// Package poll is what an event loop asks of the system: a Poller, which says what has happened to
// descriptors, and the calls that accept, read and send, which never wait. The Poller here is
// epoll's (Epoll); package netpoll has one for systems without.
package poll

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Event says what has become of a descriptor. Slot and Gen are those it was added with.
type Event struct {
	Slot, Gen uint32
	Readable  bool
	Writable  bool
	// HungUp: the peer may send no more. What it sent can still be read, up to its end or ErrAgain.
	HungUp bool
	// Broken: the connection is over in both directions.
	Broken bool
}

// Slots of events that are of no connection.
const (
	SlotListener = ^uint32(0) - iota
	SlotWaker
	SlotTicker
	SlotAlarm
)

// Poller is a loop's view of its listener, its sockets and its clock, edge-triggered. The loop
// calls it, but Wake, which anyone may, and Close, once the loop has ended. Events come many at a
// time, and reads and sends name descriptors, so that no call through this interface is made for
// each.
type Poller interface {
	// Addr is bound from the beginning; connections are taken after Listen.
	Addr() netip.AddrPort
	// Listen has connections that wait be an event of SlotListener.
	Listen() error
	// Accept takes a connection that waits, and says where it comes from; ErrAgain where none does,
	// ErrFull where the process or the system has no descriptor left.
	Accept() (fd int, from netip.Addr, err error)
	// Deafen ends Listen.
	Deafen()

	// Add watches fd until Drop.
	Add(fd int, slot, gen uint32) error
	// Stuck says that a send to fd met ErrAgain: when it has room is an event.
	Stuck(fd int)
	// Drop ends Add, and then closes fd, which was accepted. Events that were taken already may
	// still name it.
	Drop(fd int) error

	// Tick has each period from now on be an event of SlotTicker.
	Tick(period time.Duration) error
	// SetAlarm has one event of SlotAlarm, so many nanoseconds from now, instead of when it was set
	// to before.
	SetAlarm(after int64) error
	// Wake is an event of SlotWaker. It never waits.
	Wake()

	// Run calls turn until that says End. Turn must take Events before it says Park: only what
	// happens after those wakes it.
	Run(turn func() Next) error
	// Events appends what has happened to dst. It does not wait; full says that there may be more.
	Events(dst []Event) (all []Event, full bool, err error)
	Close() error
}

// Next says how a Poller goes on after a turn.
type Next uint8

// What may come after a turn.
const (
	Park  Next = iota // wait until something happens
	Again             // something is left to do
	End
)

var (
	// ErrAgain says that a socket has no room or no data now.
	ErrAgain = errors.New("poll: not now")
	// ErrFull says that the process or the system has no descriptor left.
	ErrFull = errors.New("poll: too many open files")
)

func again(call string, err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return ErrAgain
	}
	return fmt.Errorf("poll: %w", os.NewSyscallError(call, err))
}

// Accept takes a connection that waits at a listening descriptor; ErrAgain where none does, ErrFull
// where the process or the system has no descriptor left.
func Accept(listener int) (fd int, from netip.Addr, err error) {
	for {
		fd, from, errno := accept(listener)
		switch errno {
		case 0:
			return fd, from, nil
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			return -1, from, ErrFull
		default:
			return -1, from, again("accept", errno)
		}
	}
}

// Read reads once, from a descriptor that does not block. 0 and nil: the peer sends no more.
func Read(fd int, b []byte) (int, error) {
	for {
		n, errno := read(fd, b)
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR:
		default:
			return 0, again("read", errno)
		}
	}
}

// Ended reports whether nothing comes any more on fd: the peer ended its side, and all it sent was
// read.
func Ended(fd int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return n == 0 && err == nil
}
