//go:build !linux

package poll

import (
	"errors"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendFlags of every send: a full socket says so at once. A closed one raises a signal, which Go's
// runtime ignores for sockets.
const sendFlags = unix.MSG_DONTWAIT

func accept(listener int) (fd int, from netip.Addr, errno unix.Errno) {
	syscall.ForkLock.RLock() // so that no child is given the descriptor before it is marked
	fd, at, err := unix.Accept(listener)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, from, numberOf(err)
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrFrom4(at.Addr)
	case *unix.SockaddrInet6:
		from = netip.AddrFrom16(at.Addr).Unmap()
	}
	err = errors.Join(unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	if err != nil { // the peer has gone already
		_ = unix.Close(fd)
		return -1, from, unix.ECONNABORTED
	}
	return fd, from, 0
}

func read(fd int, b []byte) (int, unix.Errno) {
	n, err := unix.Read(fd, b)
	return n, numberOf(err)
}

// Info is room for what the kernel tells of a connection: here, nothing.
type Info struct{}

// Path is the smoothed round trip in microseconds, and how many bytes the kernel has not sent yet;
// both 0 where it does not say.
func (i *Info) Path(int) (rtt, unsent uint32) { return 0, 0 }

// Taken is 0: this system does not say it, so that a socket counts as taking something only once it
// takes bytes of the edge again.
func (i *Info) Taken(int) uint64 { return 0 }

func (w *Writer) send(fd int) (int, unix.Errno) {
	buffers := make([][]byte, len(w.iov))
	for i, v := range w.iov {
		buffers[i] = unsafe.Slice(v.Base, int(v.Len))
	}
	n, err := unix.SendmsgBuffers(fd, buffers, nil, nil, sendFlags)
	return n, numberOf(err)
}

// notSent is no option that every system has.
const notSent = 0

// Held is 0: this system does not say what it holds for a socket.
func Held(int) int { return 0 }

// stream makes a TCP socket that does not block.
func stream(family int) (fd int, err error) {
	syscall.ForkLock.RLock()
	if fd, err = unix.Socket(family, unix.SOCK_STREAM, 0); err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err == nil {
		if err = unix.SetNonblock(fd, true); err != nil {
			_ = unix.Close(fd)
		}
	}
	return fd, err
}

func numberOf(err error) (errno unix.Errno) {
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return errno
}
