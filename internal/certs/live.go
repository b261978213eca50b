package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"
)

// live are connections that came with a certificate, and end when that is revoked. It is safe for
// concurrent use.
type live struct {
	mu   sync.Mutex
	held map[*holding]struct{}
}

// holding is one of them.
type holding struct {
	state tls.ConnectionState
	end   func()
}

// Hold has a connection ended when the certificate that it came with is revoked, or with
// Config.Untrusted when the CA is no longer trusted that has signed it: end is called once then, by
// another goroutine or before Hold returns, and must not block. release says that the connection
// has ended.
func (k *Keeper) Hold(s tls.ConnectionState, end func()) (release func()) {
	if k.cfg.CA == "" {
		return func() {}
	}
	h := &holding{s, end}
	k.live.mu.Lock()
	if k.live.held == nil {
		k.live.held = map[*holding]struct{}{}
	}
	k.live.held[h] = struct{}{}
	k.live.mu.Unlock()
	k.endIfLost(h) // the files may have changed since it was verified
	return func() {
		k.live.mu.Lock()
		delete(k.live.held, h)
		k.live.mu.Unlock()
	}
}

// settle ends the connections whose certificate does not count any more.
func (k *Keeper) settle() {
	k.live.mu.Lock()
	all := make([]*holding, 0, len(k.live.held))
	for h := range k.live.held {
		all = append(all, h)
	}
	k.live.mu.Unlock()
	for _, h := range all {
		k.endIfLost(h)
	}
}

func (k *Keeper) endIfLost(h *holding) {
	err := k.current.Load().lost(&h.state, k.now(), k.cfg.Untrusted)
	if err == nil {
		return
	}
	k.live.mu.Lock()
	_, is := k.live.held[h]
	delete(k.live.held, h)
	k.live.mu.Unlock()
	if !is { // it has ended, or another one ends it
		return
	}
	k.ended.Add(1)
	k.cfg.Log.Warn("a connection is ended because of its certificate", "names", h.state.PeerCertificates[0].DNSNames, "subject", h.state.PeerCertificates[0].Subject.String(), "error", err)
	h.end()
}

// lost says why a certificate that was verified when its connection began does not count any more;
// nil: it does. That its time is over, or that of a list, does not matter.
func (s *set) lost(of *tls.ConnectionState, now time.Time, untrusted bool) error {
	if len(of.PeerCertificates) == 0 {
		return nil
	}
	chains := of.VerifiedChains
	if untrusted {
		chains = nil
		for _, chain := range of.VerifiedChains {
			if _, is := s.known[sha256.Sum256(chain[len(chain)-1].Raw)]; is {
				chains = append(chains, chain)
			}
		}
		if len(chains) == 0 { // the CA may have another certificate now
			for _, c := range of.PeerCertificates {
				if now.After(c.NotAfter) {
					now = c.NotAfter
				}
			}
			var err error
			if chains, err = s.verify(of.PeerCertificates, now); err != nil {
				return err
			}
		}
	}
	return s.revoked.check(chains, time.Time{})
}

// verify finds the chains by which the CA as it is now has signed a certificate.
func (s *set) verify(peer []*x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, c := range peer[1:] {
		between.AddCert(c)
	}
	return peer[0].Verify(x509.VerifyOptions{Roots: s.ca, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
}
