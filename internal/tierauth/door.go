package tierauth

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// Strict reports whether other tiers must come with TLS. A nil identity asks for nothing.
func (i *Identity) Strict() bool { return i != nil && !i.plain }

// Knock begins TLS on a connection to a tier whose port serves others as well: it asks for the
// tier's name, and whoever answers must have a certificate of that tier. The connection is the
// caller's to close, also after an error.
func (i *Identity) Knock(ctx context.Context, conn net.Conn, to Tier, protocol string) (net.Conn, error) {
	cfg := i.client(to)
	cfg.NextProtos = []string{protocol}
	under := &held{Conn: conn}
	secure := tls.Client(under, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil {
			i.loud.tell(i.log, "dial", "a connection to another tier failed", "tier", to, "addr", conn.RemoteAddr(), "error", err)
		}
		return nil, err
	}
	under.by(i, secure.ConnectionState())
	return secure, nil
}

// Door is the TLS of a port that serves others by public, which may be nil, and a tier by this
// identity: to who asks for the name of this tier it shows its certificate, and takes connections
// of that tier alone, with what prepare makes of its settings. A nil identity knows no tier.
func (i *Identity) Door(public *tls.Config, from Tier, protocol string, prepare func(*tls.Config) *tls.Config) *tls.Config {
	if public == nil {
		// without a certificate: unrecognized_name
		public = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if i == nil {
		return public
	}
	public = public.Clone()
	others := public.GetConfigForClient
	public.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != i.tier.Name() {
			if others != nil {
				return others(hello)
			}
			return nil, nil
		}
		return prepare(&tls.Config{
			Certificates: []tls.Certificate{*i.First()}, ClientCAs: i.CA(), ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, SessionTicketsDisabled: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				if Of(s.PeerCertificates[0]) != from {
					return fmt.Errorf("the certificate is not that of a %s: %q", from, s.PeerCertificates[0].DNSNames)
				}
				return i.Verify(s)
			},
		}), nil
	}
	return public
}
