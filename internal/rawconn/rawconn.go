// Package rawconn makes connections that read and write without telling Go's scheduler of it.
//
// A socket of Go never blocks a thread, and yet each of its system calls says that it may. Where a
// process has nothing else to do, that wakes the runtime's monitor each time, which then looks
// every 20 µs whether the call has ended: two wakes and a sleep for a message that needs two calls.
// Only what is known not to block may be a raw call; sockets of Go are.
package rawconn

import (
	"context"
	"net"
	"syscall"
)

// Dialer dials as net.Dialer does, for who wants an interface with Dial.
type Dialer struct{ net.Dialer }

// Dial connects.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return Of(c), nil
}

// Of is c with raw calls, or c itself where it has no socket of its own or the system has none.
func Of(c net.Conn) net.Conn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	return wrap(c, raw)
}
