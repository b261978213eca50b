package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// lists are the certificates that CAs have revoked (RFC 5280, CRLs), by who has signed them. It is
// immutable; nil: no file of them is set.
type lists []*list

type list struct {
	issuer  *x509.Certificate
	serials map[string]bool
	ends    time.Time // zero: never
}

// parseLists reads the lists of a file in PEM, each of which must be signed by one of a CA's
// certificates.
func parseLists(file string, data []byte, cas []*x509.Certificate) (all lists, err error) {
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("%s: it holds a %s beside lists of revoked certificates (X509 CRL)", file, block.Type)
		}
		crl, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		l := &list{serials: make(map[string]bool, len(crl.RevokedCertificateEntries)), ends: crl.NextUpdate}
		for _, ca := range cas {
			if bytes.Equal(ca.RawSubject, crl.RawIssuer) && crl.CheckSignatureFrom(ca) == nil {
				l.issuer = ca
			}
		}
		if l.issuer == nil {
			return nil, fmt.Errorf("%s: the list of %q is signed by no certificate of the CA's file", file, crl.Issuer)
		}
		for n := range crl.RevokedCertificateEntries {
			l.serials[string(crl.RevokedCertificateEntries[n].SerialNumber.Bytes())] = true
		}
		all = append(all, l)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the file has no list of revoked certificates in PEM (X509 CRL)", file)
	}
	return all, nil
}

// check returns why none of the chains may be used; nil: one may.
func (ls lists) check(chains [][]*x509.Certificate, now time.Time) (err error) {
	for _, chain := range chains {
		if err = ls.chain(chain, now); err == nil {
			return nil
		}
	}
	return err
}

func (ls lists) chain(chain []*x509.Certificate, now time.Time) error {
	for n := range len(chain) - 1 {
		cert, issuer := chain[n], chain[n+1]
		for _, l := range ls {
			switch {
			case !bytes.Equal(l.issuer.RawSubjectPublicKeyInfo, issuer.RawSubjectPublicKeyInfo):
			case !l.ends.IsZero() && now.After(l.ends):
				return fmt.Errorf("the list of certificates that %q has revoked ended at %v: whether %q is among them is not known", issuer.Subject, l.ends, cert.Subject)
			case l.serials[string(cert.SerialNumber.Bytes())]:
				return fmt.Errorf("the certificate of %q (serial number %x) is revoked", cert.Subject, cert.SerialNumber)
			}
		}
	}
	return nil
}

// stale is the first list that has ended; nil: none.
func (ls lists) stale(now time.Time) error {
	for _, l := range ls {
		if !l.ends.IsZero() && now.After(l.ends) {
			return fmt.Errorf("the list of certificates that %q has revoked ended at %v: nobody with one of its certificates is let in", l.issuer.Subject, l.ends)
		}
	}
	return nil
}

// certificates of a file in PEM.
func certificates(file string, data []byte) (all []*x509.Certificate, err error) {
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the file has no certificate in PEM", file)
	}
	return all, nil
}

// Verify is for tls.Config.VerifyConnection, beside what TLS itself verifies: it refuses who has a
// certificate that is revoked. A connection that goes on with an earlier one, of which TLS verifies
// nothing, is verified against the CA as it is now. The error is a
// *tls.CertificateVerificationError.
func (k *Keeper) Verify(state tls.ConnectionState) error {
	if err := k.verify(state); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return nil
}

func (k *Keeper) verify(state tls.ConnectionState) (err error) {
	s, chains := k.current.Load(), state.VerifiedChains
	if state.DidResume && s.ca != nil {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the earlier connection was without a certificate")
		}
		if chains, err = s.verify(state.PeerCertificates, k.now()); err != nil {
			return err
		}
	}
	return s.revoked.check(chains, k.now())
}

// bind has sessions go on only while the files of the CA and of revoked certificates are what they
// were when they began: others show their certificates again, which may be new ones.
func (s *set) bind(c, base *tls.Config) {
	c.WrapSession = func(cs tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		session.Extra = append(session.Extra, s.trusts[:])
		return base.EncryptTicket(cs, session)
	}
	c.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		session, err := base.DecryptTicket(ticket, cs)
		if err != nil || session == nil || len(session.Extra) == 0 || !bytes.Equal(session.Extra[len(session.Extra)-1], s.trusts[:]) {
			return nil, err
		}
		return session, nil
	}
}
