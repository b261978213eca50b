package tierauth

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Revoke adds certificates that the CA has signed to the list of those that it has revoked, the
// file CACRL of its folder, which is made where it is not there.
func (ca *CA) Revoke(folder string, all ...*x509.Certificate) error {
	at := filepath.Join(folder, CACRL)
	now := time.Now()
	// As long as the CA itself: the list is not made anew by the day.
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-skew), NextUpdate: ca.cert.NotAfter}
	old, err := os.ReadFile(at)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		block, _ := pem.Decode(old)
		if block == nil {
			return fmt.Errorf("%s: there is no PEM in it", at)
		}
		before, err := x509.ParseRevocationList(block.Bytes)
		if err == nil {
			err = before.CheckSignatureFrom(ca.cert)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		list.Number.Add(before.Number, list.Number)
		list.RevokedCertificateEntries = before.RevokedCertificateEntries
	}
	for _, cert := range all {
		if err := cert.CheckSignatureFrom(ca.cert); err != nil {
			return fmt.Errorf("the certificate of %q was not signed by this CA: %w", cert.Subject, err)
		}
		if !slices.ContainsFunc(list.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 }) {
			list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: now})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	if err != nil {
		return err
	}
	return place(at, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o644)
}

// ReadCertificate reads the first certificate of a file in PEM.
func ReadCertificate(file string) (*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s: it does not begin with a certificate in PEM", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return cert, nil
}
