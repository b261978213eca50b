package admission

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ParsePrefixes takes networks (10.0.0.0/8, fd00::/8) and single addresses, as a flag has them; the
// error names every one that is neither.
func ParsePrefixes(flag string, all []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	var errs []error
	for _, s := range all {
		p, err := parsePrefix(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s %q must be an address, or a network such as 10.0.0.0/8", flag, s))
			continue
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, errors.Join(errs...)
}

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), err
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}
