//go:build !linux

package pgtest

import (
	"errors"
	"syscall"
)

// established reports whether the client has not ended the connection, as far as it can be seen:
// what is unread hides an end.
func established(fd int) bool {
	n, _, err := syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n > 0 || errors.Is(err, syscall.EAGAIN)
}

// mount is refused: there are no file systems in memory here.
func mount(string, int64) error { return syscall.EPERM }

func unmount(string) error { return syscall.EPERM }
