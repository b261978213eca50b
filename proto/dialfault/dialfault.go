// Package dialfault says in a plain sentence why a gRPC connection could not be made.
package dialfault

import (
	"net"
	"strings"
)

// advice for what a server says when it ends a handshake.
var advice = map[string]string{
	"certificate required":          ": it wants a certificate of its clients (pushmesh: --tls-cert and --tls-key)",
	"bad certificate":               wanted,
	"unknown certificate authority": wanted,
	"expired certificate":           ": the certificate shown to it has expired",
	// TLS 1.2
	"handshake failure": ": it may want a certificate of its clients (pushmesh: --tls-cert and --tls-key)",
}

const wanted = ": it wants a certificate of its clients, signed by an authority that it knows (pushmesh: --tls-cert and --tls-key)"

// Explain makes a sentence of the message of a gRPC status about a connection to addr. wrongPort
// reports whether something listens there that does not speak gRPC, or takes TLS alone, so that
// trying again can't help. A message about anything else is returned as it is.
func Explain(addr, message string) (sentence string, wrongPort bool) {
	if _, cause, found := strings.Cut(message, "Error while dialing: "); found {
		return "no connection: " + strings.TrimSuffix(cause, `"`), false
	}
	if strings.Contains(message, "frame from server is not a settings frame: *http2.GoAwayFrame") {
		return addr + " takes connections with TLS alone: give the certificates to trust (pushmesh: --tls-ca FILE, or --tls for the system's)", true
	}
	if _, cause, found := strings.Cut(message, "remote error: tls: "); found {
		cause = strings.TrimSuffix(cause, `"`)
		return "no connection to " + addr + ": it ended the TLS handshake: " + cause + advice[cause], false
	}
	if _, cause, found := strings.Cut(message, "authentication handshake failed: "); found {
		cause = strings.TrimSuffix(cause, `"`)
		for _, end := range []string{"EOF", "connection reset by peer", "does not look like a TLS handshake"} {
			if strings.HasSuffix(cause, end) {
				cause += ": does this port take TLS (a router with --tls-cert does)?"
				break
			}
		}
		return "no connection to " + addr + ": the TLS handshake failed: " + cause, false
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
