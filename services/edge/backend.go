package edge

import (
	"net"
	"os"
	"time"
)

// ticket lets a router connect for a backend, unless the edge is about to stop or does not know the
// namespaces yet: it would refuse the Hello.
func (e *Edge) ticket(router string) (ticket []byte, address string) {
	if e.draining.Load() || e.policies.Check() != nil {
		return nil, ""
	}
	return e.tickets.Issue(router, uint64(e.clock.At(time.Now()).UnixMicro())), backendAddress(e.settings.BackendAddress, e.Addr())
}

// backendAddress is the one set, or the one listened on, with the name of this host where that
// names none.
func backendAddress(set, listening string) string {
	if set != "" {
		return set
	}
	host, port, err := net.SplitHostPort(listening)
	if err != nil || host != "" && !net.ParseIP(host).IsUnspecified() {
		return listening
	}
	if host, err = os.Hostname(); err != nil {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
