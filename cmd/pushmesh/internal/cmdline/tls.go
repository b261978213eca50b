package cmdline

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/webconn"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// TLSFlags say how to reach routers and edges with TLS.
type TLSFlags struct {
	TLS           bool   `name:"tls" env:"PUSHMESH_TLS" help:"Connect with TLS, and trust the system's certificates."`
	TLSCA         string `name:"tls-ca" env:"PUSHMESH_TLS_CA" placeholder:"FILE" help:"Connect with TLS, and trust only these certificates (PEM)."`
	TLSServerName string `name:"tls-server-name" env:"PUSHMESH_TLS_SERVER_NAME" placeholder:"NAME" help:"Connect with TLS, and expect this name in the server's certificate; by default the host that is connected to."`
	TLSCert       string `name:"tls-cert" env:"PUSHMESH_TLS_CERT" placeholder:"FILE" help:"Connect with TLS, and present this certificate (PEM); needs --tls-key."`
	TLSKey        string `name:"tls-key" env:"PUSHMESH_TLS_KEY" placeholder:"FILE" help:"Key of --tls-cert (PEM)."`
}

// config of TLS for a protocol; nil where no flag asks for TLS.
func (f *TLSFlags) config(protocol string) (*tls.Config, error) {
	if *f == (TLSFlags{}) {
		return nil, nil
	}
	cfg := &tls.Config{ServerName: f.TLSServerName, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12}
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

// Credentials reach routers as the flags say.
func (f *TLSFlags) Credentials() (credentials.TransportCredentials, error) {
	cfg, err := f.config("h2")
	switch {
	case err != nil:
		return nil, err
	case cfg == nil:
		return insecure.NewCredentials(), nil
	}
	return credentials.NewTLS(cfg), nil
}

// Dialer reaches edges as the flags say.
func (f *TLSFlags) Dialer() (func(ctx context.Context, addr string) (net.Conn, error), error) {
	return f.dialer(wire.ALPN)
}

// WebSocketDialer is Dialer for WebSockets.
func (f *TLSFlags) WebSocketDialer() (func(ctx context.Context, addr string) (net.Conn, error), error) {
	dial, err := f.dialer("http/1.1")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		web, err := webconn.Upgrade(ctx, conn, addr)
		if err != nil {
			return nil, err // a nil *Conn is no nil net.Conn
		}
		return web, nil
	}, nil
}

func (f *TLSFlags) dialer(protocol string) (func(ctx context.Context, addr string) (net.Conn, error), error) {
	cfg, err := f.config(protocol)
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
