package poll

import (
	"os"

	"golang.org/x/sys/unix"
)

// Buffers of subscribers' sockets, in bytes; 0 leaves it to the kernel, which lets them grow with
// what is sent and read (tcp_wmem, tcp_rmem).
type Buffers struct {
	// Send and Receive are SO_SNDBUF and SO_RCVBUF. Linux doubles them: half is for its own
	// bookkeeping.
	Send, Receive int
	// NotSent is TCP_NOTSENT_LOWAT: the kernel takes no more while so much of what it took has not
	// been sent once. What is on its way does not count, so that, unlike Send, it is no bound of
	// throughput. Linux alone has it here.
	NotSent int
}

// set gives them to a listener. Accepted sockets take them over, which saves three system calls for
// each; the receive buffer has to be known before a connection is there, which agrees on how much
// of it can be announced.
func (b Buffers) set(fd int) error {
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_SNDBUF, b.Send},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, b.Receive},
		{unix.IPPROTO_TCP, notSent, b.NotSent},
	} {
		if option.value == 0 || option.name == 0 {
			continue
		}
		if err := unix.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// Reset has the closing of fd give its kernel memory back at once, whatever the peer has not taken.
func Reset(fd int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}
