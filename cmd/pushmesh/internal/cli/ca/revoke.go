package ca

import (
	"crypto/x509"
	"fmt"
	"path/filepath"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// Revoke is the command pushmesh ca revoke.
type Revoke struct {
	Dir  string   `arg:"" placeholder:"DIR" help:"Folder of the CA."`
	Cert []string `arg:"" placeholder:"CERT" help:"Files of certificates (PEM) that the CA has signed."`
}

// Help of the command.
func (Revoke) Help() string {
	return `Adds certificates to DIR/ca.crl, the list of those that nobody may use any more. Nodes take it by --mesh-crl, for certificates of tiers,
and by --tls-client-crl, for those of backends and clients; each needs the new file, and reads it within seconds.

  pushmesh ca revoke ca edge-7.pem`
}

// Run writes the list.
func (c *Revoke) Run(stdio cmdline.IO) error {
	authority, err := tierauth.OpenCA(c.Dir)
	var all []*x509.Certificate
	for _, file := range c.Cert {
		if err == nil {
			var cert *x509.Certificate
			cert, err = tierauth.ReadCertificate(file)
			all = append(all, cert)
		}
	}
	if err == nil {
		err = authority.Revoke(c.Dir, all...)
	}
	if err != nil {
		return fmt.Errorf("ca revoke: %w", err)
	}
	_, err = fmt.Fprintln(stdio.Out, filepath.Join(c.Dir, tierauth.CACRL))
	return err
}
