package poll

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HasEpoll reports whether this system does.
const HasEpoll = true

// Epoll is the Poller that is an epoll instance, with a listener and timerfds of its own. One
// goroutine runs it.
//
// It waits where Go's own poller waits: the epoll descriptor is itself one that can be polled. A
// thread blocked in a system call of its own would keep the runtime's monitor awake, which looks
// thousands of times a second whether the thread's processor is to be taken away, and that costs an
// edge with idle connections more than the connections do. For the same reason nothing that can't
// block tells the scheduler of its system call.
type Epoll struct {
	fd     int
	file   *os.File // of fd: Go's poller knows it
	conn   syscall.RawConn
	raw    []unix.EpollEvent
	next   Next
	woken  atomic.Bool // Wake was called, and Events has not said so
	heeded bool        // Events has to say so
	// event is control's argument, kept here so that it makes no garbage.
	event unix.EpollEvent

	addr                    netip.AddrPort
	listener, ticker, alarm int // -1: none
}

// NewEpoll makes a poller that takes up to so many events at a time, and has no listener.
func NewEpoll(events int) (*Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// Go's poller takes descriptors that say they don't block; this one never did.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	p := &Epoll{
		fd: fd, file: os.NewFile(uintptr(fd), "epoll"), raw: make([]unix.EpollEvent, events), listener: -1, ticker: -1, alarm: -1,
	}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("poll: %w", errors.Join(err, p.Close()))
	}
	return p, nil
}

func (p *Epoll) open() (err error) {
	if p.conn, err = p.file.SyscallConn(); err != nil {
		return err
	}
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		// refused where Go's poller did not take the descriptor
		return err
	}
	if p.alarm, err = newTimer(); err != nil {
		return err
	}
	return p.Add(p.alarm, SlotAlarm, 0)
}

// OpenEpoll makes n pollers whose listeners share a port; the kernel spreads connections over them.
func OpenEpoll(addr string, b Buffers, n, events int) (all []Poller, err error) {
	for range n {
		p, err := NewEpoll(events)
		if err == nil {
			all = append(all, p)
			p.listener, p.addr, err = Bind(context.Background(), addr, b)
			addr = p.addr.String()
		}
		if err != nil {
			for _, p := range all {
				err = errors.Join(err, p.Close())
			}
			return nil, err
		}
	}
	return all, nil
}

// Addr implements Poller.
func (p *Epoll) Addr() netip.AddrPort { return p.addr }

// Listen implements Poller.
func (p *Epoll) Listen() error {
	if err := Listen(p.listener); err != nil {
		return err
	}
	return p.Add(p.listener, SlotListener, 0)
}

// Accept implements Poller.
func (p *Epoll) Accept() (fd int, from netip.Addr, err error) { return Accept(p.listener) }

// Deafen implements Poller.
func (p *Epoll) Deafen() {
	if p.listener >= 0 {
		_ = unix.Close(p.listener)
		p.listener = -1
	}
}

// Add implements Poller.
func (p *Epoll) Add(fd int, slot, gen uint32) error {
	p.event = unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | uint32(unix.EPOLLET), Fd: int32(slot), Pad: int32(gen),
	}
	return p.control(unix.EPOLL_CTL_ADD, fd)
}

// Stuck implements Poller. Room for what could not be sent is an event anyway.
func (p *Epoll) Stuck(int) {}

// Drop implements Poller.
func (p *Epoll) Drop(fd int) error {
	err := p.control(unix.EPOLL_CTL_DEL, fd)
	_ = unix.Close(fd)
	return err
}

func (p *Epoll) control(op uintptr, fd int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), op, uintptr(fd), uintptr(unsafe.Pointer(&p.event)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// past is a deadline that is over: who waits for a descriptor with it waits no longer.
var past = time.Unix(1, 0)

// Wake implements Poller. That the deadline of the epoll descriptor is over has the scheduler go on
// with the loop's goroutine, with no system call in between: next on the processor of who called,
// where that has nothing more to do.
func (p *Epoll) Wake() {
	if p.woken.CompareAndSwap(false, true) {
		_ = p.file.SetReadDeadline(past) // once it is closed nobody is to be woken
	}
}

// Run implements Poller.
func (p *Epoll) Run(turn func() Next) error {
	p.next = Park
	for {
		// The first call comes without waiting, and each other one when Go's poller has seen
		// something since the call before it began.
		err := p.conn.Read(func(uintptr) (done bool) {
			for p.next = turn(); p.next == Again; {
				p.next = turn()
			}
			done = p.next == End
			p.next = Park
			return done
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			if err != nil {
				return fmt.Errorf("poll: %w", err)
			}
			return nil
		}
		if err := p.heed(); err != nil {
			return err
		}
	}
}

// heed notes a Wake. In this order: who calls Wake afterwards ends the next wait, and what was put
// before a call that found another one pending is there for the turn that is about to begin.
func (p *Epoll) heed() error {
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	p.woken.Store(false)
	p.heeded = true
	return nil
}

// Events implements Poller.
func (p *Epoll) Events(dst []Event) (all []Event, full bool, err error) {
	if p.woken.Load() {
		if err := p.heed(); err != nil {
			return dst, false, err
		}
	}
	if p.heeded {
		p.heeded = false
		dst = append(dst, Event{Slot: SlotWaker})
	}
	n, errno := p.wait()
	if errno != 0 {
		if errno == unix.EINTR {
			return dst, true, nil
		}
		return dst, false, os.NewSyscallError("epoll_wait", errno)
	}
	for _, ev := range p.raw[:n] {
		slot := uint32(ev.Fd)
		if slot == SlotTicker {
			var expired [8]byte
			_, _ = read(p.ticker, expired[:]) // which arms it again
		}
		dst = append(dst, Event{
			Slot: slot, Gen: uint32(ev.Pad),
			Readable: ev.Events&unix.EPOLLIN != 0, Writable: ev.Events&unix.EPOLLOUT != 0,
			HungUp: ev.Events&unix.EPOLLRDHUP != 0, Broken: ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0,
		})
	}
	return dst, n == len(p.raw), nil
}

// wait never blocks. Yet among turns that follow each other without a pause it lets the scheduler
// know: a loop that has much to do must have the runtime's monitor awake, or who shares its
// processor waits for a timer of the monitor.
func (p *Epoll) wait() (n int, errno unix.Errno) {
	call := unix.RawSyscall6
	if p.next == Again {
		call = unix.Syscall6
	}
	r, _, errno := call(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p.raw))), uintptr(len(p.raw)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// Close ends the poller, its listener and its clock.
func (p *Epoll) Close() error {
	p.Deafen()
	for _, fd := range []int{p.ticker, p.alarm} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	p.ticker, p.alarm = -1, -1
	return p.file.Close()
}
