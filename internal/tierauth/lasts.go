package tierauth

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"time"
)

// Lasts reports whether there is a good certificate of what is wanted, for all of its hosts and
// with more than a third of its days left, that the CA of a file has signed.
func Lasts(cert, key, ca string, w Wanted) bool {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil || slices.ContainsFunc(w.Hosts, func(host string) bool { return pair.Leaf.VerifyHostname(host) != nil }) {
		return false
	}
	if time.Until(pair.Leaf.NotAfter) <= time.Duration(w.Days)*24*time.Hour/3 {
		return false
	}
	if w.Tier != "" {
		_, err := Open(Config{Flags: Flags{MeshCert: cert, MeshKey: key, MeshCA: ca}, Tier: w.Tier})
		return err == nil
	}
	trusted, err := os.ReadFile(ca)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(trusted) {
		return false
	}
	usage := x509.ExtKeyUsageServerAuth
	if w.Client != "" {
		usage = x509.ExtKeyUsageClientAuth
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err == nil
}
