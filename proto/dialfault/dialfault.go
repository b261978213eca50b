// Package dialfault says in a plain sentence why a gRPC connection could not be made.
package dialfault

import (
	"net"
	"strings"
)

// Explain makes a sentence of the message of a gRPC status about a connection to addr. wrongPort
// reports whether something listens there that does not speak gRPC, so that trying again can't
// help. A message about anything else is returned as it is.
func Explain(addr, message string) (sentence string, wrongPort bool) {
	if _, cause, found := strings.Cut(message, "Error while dialing: "); found {
		return "no connection: " + strings.TrimSuffix(cause, `"`), false
	}
	if _, cause, found := strings.Cut(message, "authentication handshake failed: "); found {
		return "no connection to " + addr + ": the TLS handshake failed: " + strings.TrimSuffix(cause, `"`), false
	}
	if strings.Contains(message, "error reading server preface") {
		return addr + " accepts connections but does not speak gRPC: is it a router's port (7401)?", true
	}
	if _, cause, found := strings.Cut(message, "name resolver error: "); found {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		if strings.Contains(cause, "zero addresses") || strings.Contains(cause, "no such host") {
			return "no connection: the host " + host + " is not known", false
		}
		return "no connection: the host " + host + " can't be looked up: " + cause, false
	}
	return message, false
}
