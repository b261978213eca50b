package pgtest

import (
	"fmt"
	"syscall"
)

// established reports whether neither side of a TCP connection has ended it.
func established(fd int) bool {
	const is = 1 // TCP_ESTABLISHED of net/tcp_states.h; the state is the first byte of tcp_info
	info, err := syscall.GetsockoptInet4Addr(fd, syscall.IPPROTO_TCP, syscall.TCP_INFO)
	return err == nil && info[0] == is
}

// mount makes a file system in memory.
func mount(dir string, bytes int64) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", bytes))
}

// unmount ends it; the server has files open: it goes once they are closed.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
