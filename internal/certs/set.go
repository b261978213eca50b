package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// set is certificates by name. It is immutable.
type set struct {
	all     []*tls.Certificate
	byName  map[string][]*tls.Certificate // lower case, "*.example.org" among them
	expires time.Time
	ca      *x509.CertPool
	revoked lists
	known   map[[sha256.Size]byte]struct{} // the certificates in ca
	trusts  [sha256.Size]byte              // of the files of ca and revoked
}

func parse(files []file, now time.Time) (*set, error) {
	s := &set{byName: map[string][]*tls.Certificate{}}
	var errs []error
	for _, f := range files {
		cert, err := tls.X509KeyPair(f.cert, f.key)
		if err == nil && now.After(cert.Leaf.NotAfter) {
			err = fmt.Errorf("expired at %v", cert.Leaf.NotAfter)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("certificate %s, key %s: %w", f.Cert, f.Key, err))
			continue
		}
		s.add(&cert)
	}
	return s, errors.Join(errs...)
}

func (s *set) add(c *tls.Certificate) {
	if s.all = append(s.all, c); len(s.all) == 1 || c.Leaf.NotAfter.Before(s.expires) {
		s.expires = c.Leaf.NotAfter
	}
	for _, name := range c.Leaf.DNSNames {
		name = strings.ToLower(name)
		s.byName[name] = append(s.byName[name], c)
	}
}

func (s *set) names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// choose is the first certificate for the name that the client can do with; the first of that name,
// or of all, where it can do with none: the client says why not.
func (s *set) choose(hello *tls.ClientHelloInfo) *tls.Certificate {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	fit := s.byName[name]
	if _, parent, ok := strings.Cut(name, "."); len(fit) == 0 && ok {
		fit = s.byName["*."+parent]
	}
	if len(fit) == 0 {
		return s.all[0]
	}
	for _, c := range fit {
		if hello.SupportsCertificate(c) == nil {
			return c
		}
	}
	return fit[0]
}
