package poll

import (
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newWaker makes an eventfd: each write is an event.
func newWaker() (fd int, err error) {
	fd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return fd, os.NewSyscallError("eventfd", err)
}

// newTimer makes a timerfd that is not set.
func newTimer() (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	return fd, os.NewSyscallError("timerfd_create", err)
}

var one = [8]byte{1}

// Wake implements Poller. A counter that is full wakes too.
func (p *Epoll) Wake() {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(p.waker), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	runtime.KeepAlive(p)
}

// Tick implements Poller.
func (p *Epoll) Tick(period time.Duration) (err error) {
	if p.ticker, err = newTimer(); err != nil {
		return err
	}
	every := unix.NsecToTimespec(int64(period))
	if err := unix.TimerfdSettime(p.ticker, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	return p.Add(p.ticker, SlotTicker, 0)
}

// SetAlarm implements Poller. The alarm need not be read: setting it is enough for the next edge.
func (p *Epoll) SetAlarm(after int64) error {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(after, 1))}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(p.alarm), 0, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}
