package rawconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// conn is a net.Conn whose Read and Write are its own. It is safe for concurrent use, as any is.
type conn struct {
	net.Conn
	raw syscall.RawConn
	in  half
	out half
}

// half is one direction: what its call is about, so that a call makes no garbage.
type half struct {
	mu  sync.Mutex
	try func(fd uintptr) (done bool)
	b   []byte
	n   int
	err error
}

func wrap(c net.Conn, raw syscall.RawConn) net.Conn {
	w := &conn{Conn: c, raw: raw}
	w.in.try = func(fd uintptr) bool { return w.in.attempt(fd, read) }
	w.out.try = func(fd uintptr) bool { return w.out.attempt(fd, send) }
	return w
}

// attempt makes a call until no signal cuts it short, and reports whether it went through: not
// where it would block.
func (h *half) attempt(fd uintptr, call func(fd uintptr, b []byte) (int, error)) (done bool) {
	for {
		h.n, h.err = call(fd, h.b)
		if !errors.Is(h.err, syscall.EINTR) {
			return !errors.Is(h.err, syscall.EAGAIN)
		}
	}
}

func read(fd uintptr, b []byte) (int, error) {
	if detecting {
		return syscall.Read(int(fd), b)
	}
	return raw(syscall.SYS_READ, fd, b, 0)
}

func send(fd uintptr, b []byte) (int, error) {
	if detecting {
		return syscall.Write(int(fd), b)
	}
	return raw(syscall.SYS_SENDTO, fd, b, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
}

func raw(trap, fd uintptr, b []byte, flags uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.Conn.Read(b)
	}
	h := &c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b = b
	err := c.raw.Read(h.try)
	h.b = nil
	switch {
	case err != nil:
		return 0, c.wrong("read", err)
	case h.err != nil:
		return 0, c.wrong("read", os.NewSyscallError("read", h.err))
	case h.n == 0:
		return 0, io.EOF
	}
	return h.n, nil
}

// Write implements net.Conn: it writes all of b, or says how much of it.
func (c *conn) Write(b []byte) (n int, err error) {
	h := &c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	for n < len(b) {
		h.b = b[n:]
		err := c.raw.Write(h.try)
		h.b = nil
		if err == nil {
			err = os.NewSyscallError("write", h.err)
		}
		if err != nil {
			return n, c.wrong("write", err)
		}
		n += h.n
	}
	return n, nil
}

// wrong is an error as those of package net are.
func (c *conn) wrong(what string, err error) error {
	if e, ok := err.(*net.OpError); ok { //nolint:errorlint // as it came, not what it wraps
		err = e.Err
	}
	at := c.LocalAddr()
	return &net.OpError{Op: what, Net: at.Network(), Source: at, Addr: c.RemoteAddr(), Err: err}
}
