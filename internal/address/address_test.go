package address

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// An address is an IPv4 one, or the /64 of an IPv6 one.
func TestAddresses(t *testing.T) {
	for from, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[::ffff:10.0.0.1]:80": "10.0.0.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::", "[fe80::1%eth0]:80": "fe80::",
	} {
		addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
		if got := Of(addr); got != netip.MustParseAddr(want) {
			t.Errorf("%s is %v, want %s", from, got, want)
		}
		if got := OfCall(peer.NewContext(t.Context(), &peer.Peer{Addr: addr})); got != netip.MustParseAddr(want) {
			t.Errorf("a call from %s: %v, want %s", from, got, want)
		}
	}
	if Of(&net.UnixAddr{}).IsValid() || OfCall(t.Context()).IsValid() {
		t.Error("nobody has an address")
	}
}

// A certificate names its caller by what it has: two without a common name are not one caller.
func TestCertificates(t *testing.T) {
	spiffe := &url.URL{Scheme: "spiffe", Host: "a", Path: "/billing"}
	for want, cert := range map[string]*x509.Certificate{
		"billing":            {Subject: pkix.Name{CommonName: "billing"}, DNSNames: []string{"b.example"}, URIs: []*url.URL{spiffe}},
		"spiffe://a/billing": {DNSNames: []string{"b.example"}, URIs: []*url.URL{spiffe}},
		"b.example":          {DNSNames: []string{"b.example"}},
		"serial:ff":          {SerialNumber: big.NewInt(255)},
	} {
		info := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
		if got := CertificateOf(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := CertificateOf(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{}})); got != "" {
		t.Errorf("without a certificate: %q", got)
	}
	if got := CertificateOf(t.Context()); got != "" {
		t.Errorf("nobody: %q", got)
	}
}
