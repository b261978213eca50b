package settings

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"regexp"
)

// Addr reports an address that is not host:port.
func Addr(flag, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("--%s %q: must be host:port: %w", flag, addr, err)
	}
	return nil
}

// OptionalAddr reports an address that is neither empty nor host:port.
func OptionalAddr(flag, addr string) error {
	if addr == "" {
		return nil
	}
	return Addr(flag, addr)
}

// Advertised is the address that others are told: set, else the one listened on, with this host's
// name where that is every interface; "" where nothing is listened on. It may ask the resolver.
func Advertised(set, listening string) string {
	if set != "" {
		return set
	}
	host, port, err := net.SplitHostPort(listening)
	if err != nil || !net.ParseIP(host).IsUnspecified() {
		return listening
	}
	name, err := os.Hostname()
	if err == nil {
		_, err = net.LookupHost(name)
	}
	if err != nil {
		name = "127.0.0.1"
	}
	return net.JoinHostPort(name, port)
}

// Reach is where others reach a listener, as far as its address says: one that listens everywhere
// is reached at the host of advertised.
func Reach(listening, advertised string) string {
	host, port, err := net.SplitHostPort(listening)
	if err != nil || !unspecified(host) {
		return listening
	}
	at, _, err := net.SplitHostPort(advertised)
	if err != nil || unspecified(at) {
		return listening
	}
	return net.JoinHostPort(at, port)
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// maxHost leaves room in an id of at most 64 bytes for the suffix.
const maxHost = 48

// RandomID is a node id that no other process has: the host's name (tier where it has none) and a
// random suffix.
func RandomID(tier string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = tier
	}
	host = notInID.ReplaceAllString(host, "-")
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
	return host[:min(len(host), maxHost)] + "-" + hex.EncodeToString(suffix)
}
