// Package address says what counts as one address where callers are told apart by it.
package address

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Of is what counts as one address: an IPv4 one, or the /64 of an IPv6 one. What is no address of
// TCP is all one, the zero address.
func Of(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return addr
	}
	return prefix.Addr()
}

// OfCall is that of the caller of a gRPC call.
func OfCall(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	return Of(p.Addr)
}

// CertificateOf names the caller of a gRPC call by the certificate that it has shown, which was
// verified: by its common name, or else by its first URI (a SPIFFE id), name or serial number.
// Without a certificate it is empty.
func CertificateOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	c := info.State.PeerCertificates[0]
	switch {
	case c.Subject.CommonName != "":
		return c.Subject.CommonName
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return fmt.Sprintf("serial:%x", c.SerialNumber)
}
