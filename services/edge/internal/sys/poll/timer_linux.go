package poll

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newTimer makes a timerfd that is not set.
func newTimer() (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	return fd, os.NewSyscallError("timerfd_create", err)
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
