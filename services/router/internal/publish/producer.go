package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/pushmesh/pushmesh/internal/address"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// producer names who calls, for the limits: the backend, which has proven its name; where nothing
// has to be proven the certificate's name, else the token (hashed: it is a secret), else the host.
func producer(ctx context.Context) string {
	if c := backends.Of(ctx); c != nil {
		return c.Who().Producer()
	}
	if name := address.CertificateOf(ctx); name != "" {
		return "cert:" + name
	}
	p, _ := peer.FromContext(ctx)
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

// client names who publishes over an edge: the user, on however many connections, else the
// connection's client id.
func client(it *meshv1.ClientPublish_Item) string {
	if user := it.GetUser(); user != "" {
		return "user:" + user
	}
	return "client:" + it.GetClientId()
}

// from is the user whose message it is, as sessions name users: without authentication "client:"
// and the client id. It is never empty: that is a backend's.
func from(it *meshv1.ClientPublish_Item) string {
	if user := it.GetUser(); user != "" {
		return user
	}
	return "client:" + it.GetClientId()
}

func hasTraceparent(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, "traceparent")) > 0
}
