//go:build !linux

package rawconn

import (
	"net"
	"syscall"
)

func wrap(c net.Conn, _ syscall.RawConn) net.Conn { return c }
