package loop

import (
	"fmt"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/netpoll"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// PollerKind says who tells a loop what happens to its sockets.
type PollerKind string

// Kinds of pollers.
const (
	PollerAuto  PollerKind = "auto"  // PollerEpoll where the system has it
	PollerEpoll PollerKind = "epoll" // Linux's
	// Go's own, which every system has: slower, a goroutine for each connection
	PollerNet PollerKind = "net"
)

// openPollers makes pollers of n loops that share addr.
func openPollers(kind PollerKind, addr string, b poll.Buffers, n int) ([]poll.Poller, error) {
	if kind.Chosen() == PollerNet {
		return netpoll.Open(addr, b, n, pollEvents)
	}
	return poll.OpenEpoll(addr, b, n, pollEvents)
}

// Chosen is the kind that k means on this system.
func (k PollerKind) Chosen() PollerKind {
	switch {
	case k == PollerEpoll, k == PollerNet:
		return k
	case poll.HasEpoll:
		return PollerEpoll
	}
	return PollerNet
}

// ParsePoller finds the kind; "" is auto.
func ParsePoller(s string) (PollerKind, error) {
	switch k := PollerKind(s); k {
	case "":
		return PollerAuto, nil
	case PollerAuto, PollerEpoll, PollerNet:
		return k, nil
	}
	return "", fmt.Errorf("--poller %q must be auto, epoll or net", s)
}
