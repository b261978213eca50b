package pushmesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/pushmesh/pushmesh/proto/wire"
)

// sessionsKept is how many edges a subscriber keeps tickets of, so that it comes back to them
// cheaply.
const sessionsKept = 16

// tlsFor completes what a caller wants of TLS.
func tlsFor(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	cfg = cfg.Clone()
	if len(cfg.NextProtos) == 0 {
		cfg.NextProtos = []string{wire.ALPN}
	}
	if cfg.ClientSessionCache == nil {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(sessionsKept)
	}
	return cfg
}

// dial reaches a place, and shakes hands there where that is wanted.
func (s *Subscriber) dial(ctx context.Context, at place) (net.Conn, error) {
	conn, err := s.cfg.Dial(ctx, at.addr)
	var said *Error // ThroughRouter's
	switch {
	case errors.As(err, &said):
		return nil, said
	case err != nil:
		return nil, fmt.Errorf("pushmesh: no connection: %w", err)
	}
	if s.cfg.TLS == nil {
		return conn, nil
	}
	cfg := s.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		if cfg.ServerName, _, err = net.SplitHostPort(at.name); err != nil {
			cfg.ServerName = at.name
		}
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("pushmesh: no connection to %s: the TLS handshake failed: %w", at.addr, err)
	}
	return secure, nil
}
