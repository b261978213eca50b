package tierauth

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/certs"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
)

// Identity is a process's certificate, and who signs those of others, as the files are now. It is a
// lifecycle.Part. A nil one stands for plain text. It is safe for concurrent use.
type Identity struct {
	*certs.Keeper
	tier  Tier
	plain bool // connections without TLS are taken as well
	log   *slog.Logger
	loud  *loud

	handshakes *prometheus.CounterVec
	forbidden  *prometheus.CounterVec
}

// client is the TLS of one call to another tier: connections are never resumed, so that each
// checks the certificates of that time.
func (i *Identity) client(to Tier) *tls.Config {
	return &tls.Config{
		ServerName: to.Name(), RootCAs: i.CA(), MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.First(), nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			if Of(s.PeerCertificates[0]) != to {
				return fmt.Errorf("the certificate of who answers is of several tiers: %q", s.PeerCertificates[0].DNSNames)
			}
			return i.Verify(s)
		},
	}
}

// server is the TLS that other tiers are served with.
func (i *Identity) server() *tls.Config {
	now := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			Certificates: []tls.Certificate{*i.First()}, ClientCAs: i.CA(), ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true, VerifyConnection: i.Verify,
		}, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetConfigForClient: now}
}

// DialOption is for connections to another tier: whoever answers there must have a certificate of
// that tier.
func (i *Identity) DialOption(to Tier) grpc.DialOption {
	if i == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(&dial{credentials.NewTLS(i.client(to)), i, to})
}

// dial begins each connection with the certificates of that time.
type dial struct {
	credentials.TransportCredentials
	by *Identity
	to Tier
}

// ClientHandshake implements credentials.TransportCredentials.
func (d *dial) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	under := &held{Conn: conn}
	secure, info, err := credentials.NewTLS(d.by.client(d.to)).ClientHandshake(ctx, authority, under)
	if err != nil && ctx.Err() == nil {
		d.by.loud.tell(d.by.log, "dial", "a connection to another tier failed", "tier", d.to, "addr", conn.RemoteAddr(), "error", err)
	}
	if t, ok := info.(credentials.TLSInfo); ok && err == nil {
		under.by(d.by, t.State)
	}
	return secure, info, err
}

// held is what lies under a connection: it is closed when the certificate of who answers is
// revoked.
type held struct {
	net.Conn
	release func() // nil: hands aren't shaken
}

func (h *held) by(i *Identity, s tls.ConnectionState) {
	h.release = i.Hold(s, func() { _ = h.Conn.Close() })
}

// Close implements net.Conn.
func (h *held) Close() error {
	if h.release != nil {
		h.release()
	}
	return h.Conn.Close()
}

// Clone implements credentials.TransportCredentials.
func (d *dial) Clone() credentials.TransportCredentials {
	return &dial{d.TransportCredentials.Clone(), d.by, d.to}
}

// TLS is what a server of other tiers takes connections with; nil: plain text.
func (i *Identity) TLS() *grpcserve.TLS {
	if i == nil {
		return nil
	}
	return &grpcserve.TLS{Config: i.server(), Required: !i.plain, Began: i.began, Hold: i.Hold}
}

var results = map[grpcserve.Beginning]string{
	grpcserve.Plain: "plain", grpcserve.Refused: "refused", grpcserve.Failed: "failed", grpcserve.Full: "full", grpcserve.Resumed: "full",
}

func (i *Identity) began(b grpcserve.Beginning, from net.Addr, err error) {
	if i.handshakes != nil {
		i.handshakes.WithLabelValues(results[b]).Inc()
	}
	switch b {
	case grpcserve.Refused:
		i.loud.tell(i.log, "refused", "a connection was refused: between tiers there must be TLS", "from", from)
	case grpcserve.Failed:
		i.loud.tell(i.log, "failed", "a connection was refused: no handshake with a certificate of the mesh's CA", "from", from, "error", err)
	case grpcserve.Plain:
		i.loud.tell(i.log, "plain", "a connection without TLS was taken, as --plain-tiers says", "from", from)
	}
}

func (i *Identity) register(reg prometheus.Registerer) {
	prefix := "pushmesh_" + string(i.tier) + "_"
	i.handshakes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "mesh_handshakes_total", Help: "Connections of other tiers by how they began: full (TLS), failed, refused (without TLS) or plain (without TLS, and taken).",
	}, []string{"result"})
	i.forbidden = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "mesh_forbidden_total", Help: "Calls refused because the caller's certificate is of no tier that may make them, by tier.",
	}, []string{"tier"})
	if i.tier == Store || i.tier == Compute { // the others serve no tier
		for _, result := range results {
			i.handshakes.WithLabelValues(result)
		}
		reg.MustRegister(i.handshakes, i.forbidden)
	}
	i.RegisterMesh(string(i.tier), reg)
}

// loudEvery is how often one kind of refusal is told in the log.
const loudEvery = time.Second

// loud keeps a log readable while somebody tries again and again.
type loud struct {
	mu     sync.Mutex
	now    func() time.Time
	last   map[string]time.Time
	unsaid map[string]int
}

func newLoud() *loud {
	return &loud{now: time.Now, last: map[string]time.Time{}, unsaid: map[string]int{}}
}

// tell warns, once a second for each kind, of how many others nothing was said.
func (l *loud) tell(log *slog.Logger, kind, text string, args ...any) {
	l.mu.Lock()
	now := l.now()
	if now.Sub(l.last[kind]) < loudEvery {
		l.unsaid[kind]++
		l.mu.Unlock()
		return
	}
	unsaid := l.unsaid[kind]
	l.last[kind], l.unsaid[kind] = now, 0
	l.mu.Unlock()
	if unsaid > 0 {
		args = append(args, "others before", unsaid)
	}
	log.Warn(text, args...)
}
