package poll

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// backlog is what the kernel may hold for accept; it lowers this to net.core.somaxconn.
const backlog = 4096

// Bind makes a TCP socket of its own for addr that shares the port with others of this process
// (SO_REUSEPORT), and says which address it has. It takes connections once Listen was called; they
// have its buffers.
func Bind(ctx context.Context, addr string, b Buffers) (fd int, bound netip.AddrPort, err error) {
	at, err := resolve(ctx, addr)
	if err != nil {
		return -1, bound, fmt.Errorf("listen on %s: %w", addr, err)
	}
	family, sa := sockaddr(at)
	if fd, err = stream(family); err != nil {
		return -1, bound, os.NewSyscallError("socket", err)
	}
	if bound, err = bind(fd, sa, b); err != nil {
		return -1, bound, fmt.Errorf("listen on %s: %w", addr, errors.Join(err, unix.Close(fd)))
	}
	return fd, bound, nil
}

func bind(fd int, sa unix.Sockaddr, b Buffers) (bound netip.AddrPort, err error) {
	for _, option := range []struct{ level, name int }{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR},
		{unix.SOL_SOCKET, unix.SO_REUSEPORT},
		// A connection is told what it is owed in one write each turn: nothing is gained by waiting
		// for more. Linux has accepted sockets take this over from the listener, which saves a
		// system call for each.
		{unix.IPPROTO_TCP, unix.TCP_NODELAY},
	} {
		if err := unix.SetsockoptInt(fd, option.level, option.name, 1); err != nil {
			return bound, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := b.set(fd); err != nil {
		return bound, err
	}
	if err := unix.Bind(fd, sa); err != nil {
		return bound, os.NewSyscallError("bind", err)
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		return bound, os.NewSyscallError("getsockname", err)
	}
	switch got := got.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(got.Addr), uint16(got.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(got.Addr), uint16(got.Port)), nil
	}
	return bound, errors.New("not a TCP socket")
}

// Peer is the address at the other end of a connection; zero where it has gone already.
func Peer(fd int) netip.Addr {
	at, err := unix.Getpeername(fd)
	if err != nil {
		return netip.Addr{}
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(at.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(at.Addr).Unmap()
	}
	return netip.Addr{}
}

// Listen begins to take connections.
func Listen(fd int) error { return os.NewSyscallError("listen", unix.Listen(fd, backlog)) }

// resolve finds the address; an empty host is every address of both families.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		host = "::"
		if !hasIPv6() {
			host = "0.0.0.0"
		}
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(n)), nil
}

func hasIPv6() bool {
	fd, err := stream(unix.AF_INET6)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Bind(fd, &unix.SockaddrInet6{}) == nil
}

func sockaddr(at netip.AddrPort) (family int, sa unix.Sockaddr) {
	if at.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// EndWrites tells the peer that nothing more comes; what it sends can still be read.
func EndWrites(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }

// Close closes a descriptor.
func Close(fd int) { _ = unix.Close(fd) }
