package address

import (
	"net"
	"net/netip"
	"testing"

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
