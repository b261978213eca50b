package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// producer names who calls, for the limits: the certificate's name, else the token (hashed: it is a secret), else the host.
func producer(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	if p != nil {
		if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.PeerCertificates) > 0 {
			return "cert:" + tls.State.PeerCertificates[0].Subject.CommonName
		}
	}
	for _, v := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if token, ok := strings.CutPrefix(v, "Bearer "); ok && token != "" {
			sum := sha256.Sum256([]byte(token))
			return "token:" + hex.EncodeToString(sum[:16])
		}
	}
	if p == nil || p.Addr == nil {
		return "host:unknown"
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		host = p.Addr.String()
	}
	return "host:" + host
}

func hasTraceparent(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, "traceparent")) > 0
}
