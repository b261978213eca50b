// Package uring sends to many sockets with one system call, through io_uring (Linux 5.18 and later,
// where it is allowed).
package uring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows is the kernel's, from include/uapi/linux/io_uring.h.

const (
	opSendmsg = 9
	opSend    = 26

	setupCQSize      = 1 << 3
	setupSubmitAll   = 1 << 7
	setupCoopTaskrun = 1 << 8

	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1

	enterGetEvents = 1 << 0

	registerProbe = 8

	opSupported = 1 << 0

	offSQRing = 0
	offSQEs   = 0x10000000
)

type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

// sqe is a submission. The kernel copies it while io_uring_enter runs.
type sqe struct {
	op       uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uintptr
	len      uint32
	msgFlags uint32
	userData uint64
	_        [3]uint64
}

// cqe is a completion.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

type probe struct {
	lastOp, opsLen uint8
	_              uint16
	_              [3]uint32
	ops            [256]struct {
		op    uint8
		_     uint8
		flags uint16
		_     uint32
	}
}

func setup(entries uint32, p *params) (int, unix.Errno) {
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	return int(fd), errno
}

// enter is a full system call to the runtime, which may give the loop's processor to others: a
// thousand sends take milliseconds.
func enter(fd int, submit, wait uint32, flags uintptr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), flags, 0, 0)
	return int(n), errno
}

func register(fd int, op uintptr, arg unsafe.Pointer, n uintptr) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), op, uintptr(arg), n, 0, 0)
	return errno
}
