package poll

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SendFlags of every send: a full socket says so at once, and a closed one raises no signal.
const SendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

// What never waits is a raw system call, of which the scheduler need not be told.

func accept(listener int) (fd int, from netip.Addr, errno unix.Errno) {
	var at unix.RawSockaddrInet6 // the longer one of both families
	size := uint32(unsafe.Sizeof(at))
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	switch {
	case errno != 0:
		return -1, from, errno
	case at.Family == unix.AF_INET:
		return int(n), netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&at)).Addr), 0
	}
	return int(n), netip.AddrFrom16(at.Addr).Unmap(), 0
}

func read(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// Info is room for what the kernel tells of a connection; it belongs to one goroutine.
type Info struct {
	tcp  unix.TCPInfo
	size uint32
}

// Path is the smoothed round trip in microseconds, and how many bytes the kernel has not sent yet;
// both 0 where it does not say.
func (i *Info) Path(fd int) (rtt, unsent uint32) {
	if !i.read(fd) {
		return 0, 0
	}
	return i.tcp.Rtt, i.tcp.Notsent_bytes
}

// Taken is how many bytes the peer has acknowledged; 0 where the kernel does not say.
func (i *Info) Taken(fd int) uint64 {
	if !i.read(fd) {
		return 0
	}
	return i.tcp.Bytes_acked
}

func (i *Info) read(fd int) bool {
	i.size = uint32(unsafe.Sizeof(i.tcp))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(&i.tcp)), uintptr(unsafe.Pointer(&i.size)), 0)
	return errno == 0
}

func (w *Writer) send(fd int) (int, unix.Errno) {
	if len(w.iov) == 1 {
		v := &w.iov[0]
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(v.Base)), uintptr(v.Len), SendFlags, 0, 0)
		return int(n), errno
	}
	w.msg.Iov = unsafe.SliceData(w.iov)
	w.msg.SetIovlen(len(w.iov))
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&w.msg)), SendFlags)
	w.msg.Iov = nil
	return int(n), errno
}

const notSent = unix.TCP_NOTSENT_LOWAT

// What SO_MEMINFO tells, by the kernel's numbers (linux/sock_diag.h).
const (
	memReceive = 0 // SK_MEMINFO_RMEM_ALLOC
	memSend    = 5 // SK_MEMINFO_WMEM_QUEUED
	memFields  = 9
)

// Held is how much memory the kernel has for what a socket was sent and has not read, and for what
// it was given and the peer has not acknowledged; its own bookkeeping counts. 0: it does not say.
func Held(fd int) int {
	var info [memFields]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return int(info[memReceive]) + int(info[memSend])
}

// stream makes a TCP socket that does not block.
func stream(family int) (fd int, err error) {
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}
