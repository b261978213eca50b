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

var notInID = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// maxHost leaves room in an id of at most 64 bytes for the suffix.
const maxHost = 48

// RandomID is a node id that no other process has: the host's name (tier where it has none) and a random suffix.
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
