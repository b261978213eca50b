package cmdline

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"

	"github.com/pushmesh/pushmesh/proto/wire"
)

// TLSFlags say how to reach edges with TLS.
type TLSFlags struct {
	TLS           bool   `name:"tls" help:"Connect to edges with TLS, and trust the system's certificates."`
	TLSCA         string `name:"tls-ca" placeholder:"FILE" help:"Connect with TLS, and trust only these certificates (PEM)."`
	TLSServerName string `name:"tls-server-name" placeholder:"NAME" help:"Connect with TLS, and expect this name in the edge's certificate; by default the host of --edge."`
	TLSCert       string `name:"tls-cert" placeholder:"FILE" help:"Connect with TLS, and present this certificate (PEM); needs --tls-key."`
	TLSKey        string `name:"tls-key" placeholder:"FILE" help:"Key of --tls-cert (PEM)."`
}

// config of TLS; nil where no flag asks for it.
func (f *TLSFlags) config() (*tls.Config, error) {
	if *f == (TLSFlags{}) {
		return nil, nil
	}
	cfg := &tls.Config{ServerName: f.TLSServerName, NextProtos: []string{wire.ALPN}, MinVersion: tls.VersionTLS12}
	if f.TLSCA != "" {
		pem, err := os.ReadFile(f.TLSCA)
		if err != nil {
			return nil, Usage("--tls-ca: %w", err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Usage("--tls-ca %s: the file has no certificate in PEM", f.TLSCA)
		}
	}
	if f.TLSCert != "" || f.TLSKey != "" {
		cert, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
		if err != nil {
			return nil, Usage("--tls-cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// dialer reaches edges as the flags say.
func (f *TLSFlags) Dialer() (func(ctx context.Context, addr string) (net.Conn, error), error) {
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
