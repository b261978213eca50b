package outbound

import "net/netip"

// Kind of an address.
type Kind string

// Kinds of addresses. Only public ones are called without being listed.
const (
	Public      Kind = "public"
	Loopback    Kind = "loopback"
	Private     Kind = "private"
	LinkLocal   Kind = "link_local"
	Multicast   Kind = "multicast"
	Unspecified Kind = "unspecified"
	Metadata    Kind = "metadata"
	Reserved    Kind = "reserved"
)

func (k Kind) describe() string {
	switch k {
	case Loopback:
		return "an address of this host (loopback)"
	case Private:
		return "an address of a private network"
	case LinkLocal:
		return "a link-local address"
	case Multicast:
		return "a multicast address"
	case Unspecified:
		return "no address of a host (unspecified)"
	case Metadata:
		return "where clouds hand out credentials (metadata)"
	case Reserved:
		return "in a reserved range"
	}
	return "public"
}

// metadata are the addresses at which clouds tell a machine, or a container, its credentials: AWS,
// Google Cloud, Azure and most others; ECS and EKS; Alibaba; Azure's wire server; Oracle.
var metadata = addrs("169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "169.254.170.2", "169.254.170.23", "fd00:ec2::23",
	"100.100.100.200", "168.63.129.16", "192.0.0.192")

// ranges that are not public, the first that holds an address says its kind: the registries of
// special-purpose addresses at IANA (RFC 6890), what is globally reachable there left out.
var ranges = []struct {
	kind Kind
	of   []netip.Prefix
}{
	{Loopback, prefixes("127.0.0.0/8", "::1/128")},
	// Linux takes 0.0.0.0 for loopback.
	{Unspecified, prefixes("0.0.0.0/8", "::/128")},
	{LinkLocal, prefixes("169.254.0.0/16", "fe80::/10")},
	// 100.64.0.0/10 is between providers and customers, fec0::/10 what fc00::/7 took over from.
	{Private, prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")},
	{Multicast, prefixes("224.0.0.0/4", "ff00::/8")},
	{Reserved, prefixes("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		// Teredo and others; documentation; 6to4, which may hold any IPv4 address.
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")},
}

// global is all of IPv6 that was given out.
var global = netip.MustParsePrefix("2000::/3")

// nat64 holds IPv4 addresses for hosts that have none of their own (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// KindOf an address, which may be an IPv4 one in IPv6.
func KindOf(ip netip.Addr) Kind {
	ip = plain(ip)
	if v4, ok := translated(ip); ok {
		ip = v4
	}
	if metadata[ip] {
		return Metadata
	}
	for _, r := range ranges {
		for _, p := range r.of {
			if p.Contains(ip) {
				return r.kind
			}
		}
	}
	if !ip.IsValid() || ip.Is6() && !global.Contains(ip) {
		return Reserved
	}
	return Public
}

// plain is an address without a zone, which no prefix contains, and IPv4 as such.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// translated is the IPv4 address that a translator connects to.
func translated(ip netip.Addr) (netip.Addr, bool) {
	if !nat64.Contains(ip) {
		return ip, false
	}
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

func prefixes(all ...string) (ps []netip.Prefix) {
	for _, p := range all {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}

func addrs(all ...string) map[netip.Addr]bool {
	m := map[netip.Addr]bool{}
	for _, a := range all {
		m[netip.MustParseAddr(a)] = true
	}
	return m
}
