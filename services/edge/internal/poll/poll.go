// Package poll is epoll, eventfd, timerfd and non-blocking TCP sockets: the system calls of an event loop.
package poll

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Event says what has become of a descriptor. Slot and Gen are those it was added with.
type Event struct {
	Slot, Gen uint32
	Readable  bool
	Writable  bool
	// HungUp: the peer sends no more; what it sent can still be read.
	HungUp bool
	// Broken: the connection is over in both directions.
	Broken bool
}

// Poller is an epoll instance, edge-triggered. One goroutine waits.
type Poller struct {
	fd  int
	raw []unix.EpollEvent
}

// New makes a poller that takes up to so many events at a time.
func New(events int) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &Poller{fd: fd, raw: make([]unix.EpollEvent, events)}, nil
}

// Add watches fd until it is closed.
func (p *Poller) Add(fd int, slot, gen uint32) error {
	ev := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | uint32(unix.EPOLLET), Fd: int32(slot), Pad: int32(gen),
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev))
}

// Wait appends what has happened to dst. It blocks until something has, unless poll is true.
func (p *Poller) Wait(dst []Event, poll bool) ([]Event, error) {
	timeout := -1
	if poll {
		timeout = 0
	}
	n, err := unix.EpollWait(p.fd, p.raw, timeout)
	if err != nil {
		if errors.Is(err, unix.EINTR) {
			return dst, nil
		}
		return dst, os.NewSyscallError("epoll_wait", err)
	}
	for _, ev := range p.raw[:n] {
		dst = append(dst, Event{
			Slot: uint32(ev.Fd), Gen: uint32(ev.Pad),
			Readable: ev.Events&unix.EPOLLIN != 0, Writable: ev.Events&unix.EPOLLOUT != 0,
			HungUp: ev.Events&unix.EPOLLRDHUP != 0, Broken: ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0,
		})
	}
	return dst, nil
}

// Close ends the poller.
func (p *Poller) Close() error { return unix.Close(p.fd) }

// NewWaker makes an eventfd: each Wake is an event of a poller it was added to.
func NewWaker() (fd int, err error) {
	fd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return fd, os.NewSyscallError("eventfd", err)
}

var one = [8]byte{1}

// Wake never blocks: a counter that is full wakes too.
func Wake(fd int) {
	_, _ = unix.Write(fd, one[:])
}

// NewTicker makes a timerfd that fires every period from now on.
func NewTicker(period time.Duration) (fd int, err error) {
	if fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("timerfd_create", err)
	}
	every := unix.NsecToTimespec(int64(period))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return -1, errors.Join(os.NewSyscallError("timerfd_settime", err), unix.Close(fd))
	}
	return fd, nil
}

// ErrAgain says that a socket has no room or no data now.
var ErrAgain = errors.New("poll: not now")

// Read reads once. 0 and nil: the peer sends no more.
func Read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err == nil {
			return n, nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return 0, again("read", err)
	}
}

func again(call string, err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return ErrAgain
	}
	return fmt.Errorf("poll: %w", os.NewSyscallError(call, err))
}
