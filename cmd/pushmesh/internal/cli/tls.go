package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"

	"github.com/pushmesh/pushmesh/proto/wire"
)

// tlsFlags say how to reach edges with TLS.
type tlsFlags struct {
	TLS           bool   `name:"tls" help:"Come to edges with TLS, trusting what the system trusts."`
	TLSCA         string `name:"tls-ca" placeholder:"FILE" help:"With TLS, trusting these certificates (PEM) alone."`
	TLSServerName string `name:"tls-server-name" placeholder:"NAME" help:"With TLS, the name that the edge's certificate must have; by default the host of --edge."`
	TLSCert       string `name:"tls-cert" placeholder:"FILE" help:"With TLS, showing this certificate (PEM); needs --tls-key."`
	TLSKey        string `name:"tls-key" placeholder:"FILE" help:"The certificate's key (PEM)."`
}

// config of TLS; nil where no flag asks for it.
func (f *tlsFlags) config() (*tls.Config, error) {
	if *f == (tlsFlags{}) {
		return nil, nil
	}
	cfg := &tls.Config{ServerName: f.TLSServerName, NextProtos: []string{wire.ALPN}, MinVersion: tls.VersionTLS12}
	if f.TLSCA != "" {
		pem, err := os.ReadFile(f.TLSCA)
		if err != nil {
			return nil, usage("--tls-ca: %w", err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--tls-ca %s: no certificate in PEM is in it", f.TLSCA)
		}
	}
	if f.TLSCert != "" || f.TLSKey != "" {
		cert, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
		if err != nil {
			return nil, usage("--tls-cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// dialer reaches edges as the flags say.
func (f *tlsFlags) dialer() (func(ctx context.Context, addr string) (net.Conn, error), error) {
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if cfg != nil {
			return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}, nil
}
