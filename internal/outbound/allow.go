package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Allow lists what may be called beside public addresses. Its zero value lists nothing.
type Allow struct {
	prefixes []netip.Prefix
	// at are single addresses with a port, hosts are names with a port, in lower case.
	at    map[netip.AddrPort]bool
	hosts map[string]bool
}

// ParseAllow reads a list of 10.0.0.0/8 (addresses), 10.0.0.7 (one address), 10.0.0.7:8080 (one
// address and port), hooks.internal:8080 (a name and port: whatever private or loopback address it
// stands for). The error names every entry that is none of these.
func ParseAllow(list []string) (Allow, error) {
	a := Allow{at: map[netip.AddrPort]bool{}, hosts: map[string]bool{}}
	var errs []error
	for _, entry := range list {
		if err := a.add(strings.TrimSpace(entry)); err != nil {
			errs = append(errs, err)
		}
	}
	return a, errors.Join(errs...)
}

func (a *Allow) add(entry string) error {
	if p, err := netip.ParsePrefix(entry); err == nil {
		if p.Addr().Is4In6() {
			return fmt.Errorf("--outbound-allow %q: write it as an IPv4 prefix", entry)
		}
		a.prefixes = append(a.prefixes, p.Masked())
		return nil
	}
	if ip, err := netip.ParseAddr(entry); err == nil {
		ip = plain(ip)
		a.prefixes = append(a.prefixes, netip.PrefixFrom(ip, ip.BitLen()))
		return nil
	}
	if at, err := netip.ParseAddrPort(entry); err == nil {
		a.at[netip.AddrPortFrom(plain(at.Addr()), at.Port())] = true
		return nil
	}
	host, port, err := net.SplitHostPort(entry)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || host == "" || strings.ContainsAny(host, "/@:* ") {
		return fmt.Errorf("--outbound-allow %q: must be a prefix such as 10.0.0.0/8, an address, or host:port", entry)
	}
	a.hosts[key(host, port)] = true
	return nil
}

// key of a name and port; a name may end in a dot.
func key(host, port string) string {
	return strings.ToLower(strings.TrimSuffix(host, ".")) + ":" + port
}

// judge reports whether to, which host (host:port) stands for, may be called, and its kind if not.
func (a Allow) judge(host string, to netip.AddrPort) (Kind, bool) {
	ip := plain(to.Addr())
	kind := KindOf(ip)
	if kind == Public || a.listed(ip, to.Port(), kind) {
		return kind, true
	}
	if name, port, err := net.SplitHostPort(host); err == nil && a.hosts[key(name, port)] {
		return kind, kind == Private || kind == Loopback
	}
	return kind, false
}

func (a Allow) listed(ip netip.Addr, port uint16, kind Kind) bool {
	same := ip
	if v4, ok := translated(ip); ok {
		same = v4
	}
	if a.at[netip.AddrPortFrom(ip, port)] || a.at[netip.AddrPortFrom(same, port)] {
		return true
	}
	for _, p := range a.prefixes {
		if kind == Metadata && !p.IsSingleIP() {
			continue // a large network that holds it is no reason to hand out credentials
		}
		if p.Contains(ip) || p.Contains(same) {
			return true
		}
	}
	return false
}
