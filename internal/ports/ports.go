// Package ports gives this process ports of 127.0.0.1 that stay its own: a server can be stopped
// and started again on the port that it had, whatever other processes listen on or connect from
// meanwhile.
package ports

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
)

// Blocks of ports lie below those from which the kernel takes outgoing connections (32,768 on).
const (
	first  = 12_000
	size   = 500
	blocks = 40
)

// lease of a block. Its first port is listened on for as long as the process lives: whoever holds
// that has the others too.
type lease struct {
	mu    sync.Mutex
	guard net.Listener
	base  int
	given int
}

// mine is the process's; a lease is of no use if there are several.
var mine lease

// Port that nobody listens on and that this process alone is given. It comes round again after some
// 500 others.
func Port() (int, error) { return mine.port() }

// Addr is a Port with its host.
func Addr() (string, error) {
	port, err := Port()
	return addr(port), err
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (l *lease) port() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.take(); err != nil {
		return 0, err
	}
	for range size {
		l.given++
		port := l.base + 1 + l.given%(size-1)
		if probe, err := listen(port); err == nil {
			// not one of ours, nor of a program that knows nothing of leases
			return port, probe.Close()
		}
	}
	return 0, errors.New("every port of the process's block is in use")
}

// take takes a block, if there is none yet.
func (l *lease) take() (err error) {
	for i := 0; l.guard == nil && i < blocks; i++ {
		l.base = first + i*size
		l.guard, err = listen(l.base)
	}
	return err
}

func listen(port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr(port))
}
