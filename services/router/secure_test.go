package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/dialfault"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ways to a router.
var ways = map[string]func(testing.TB, func(*Settings)) *mesh{
	"plain":      startMesh,
	"mutual TLS": func(tb testing.TB, change func(*Settings)) *mesh { return mutual(tb, change).mesh },
}

// secured is a mesh whose router takes TLS.
type secured struct {
	*mesh
	ca  *testca.Authority
	dir string
}

// secureMesh has files router.pem and router.key, for 127.0.0.1.
func secureMesh(tb testing.TB, change func(m *secured, s *Settings)) *secured {
	tb.Helper()
	m := &secured{dir: tb.TempDir()}
	var err error
	if m.ca, err = testca.New(); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(m.file("ca.pem"), m.ca.PEM(), 0o600); err != nil {
		tb.Fatal(err)
	}
	m.issue(tb, "router", time.Now().Add(time.Hour), "first.example", "127.0.0.1")
	m.mesh = startMesh(tb, func(s *Settings) {
		s.TLSCerts, s.TLSKeys, s.TLSReload = []string{m.file("router.pem")}, []string{m.file("router.key")}, 20*time.Millisecond
		if change != nil {
			change(m, s)
		}
	})
	m.creds = credentials.NewTLS(m.trust(tb, ""))
	return m
}

// mutual is one whose backends need TLS and a certificate. Its own is "backend".
func mutual(tb testing.TB, change func(*Settings)) *secured {
	tb.Helper()
	m := secureMesh(tb, func(m *secured, s *Settings) {
		s.TLSClientCA, s.TLSRequired = m.file("ca.pem"), true
		if change != nil {
			change(s)
		}
	})
	m.creds = credentials.NewTLS(m.trust(tb, "backend"))
	m.conn = m.from(tb, "127.0.0.1")
	m.pub = pushmeshv1.NewPublishServiceClient(m.conn)
	return m
}

func (m *secured) file(name string) string { return filepath.Join(m.dir, name) }

// issue writes a certificate and its key, one after the other.
func (m *secured) issue(tb testing.TB, name string, until time.Time, names ...string) {
	tb.Helper()
	cert, key, err := m.ca.Issue(until, names...)
	if err = errors.Join(err, os.WriteFile(m.file(name+".pem"), cert, 0o600), os.WriteFile(m.file(name+".key"), key, 0o600)); err != nil {
		tb.Fatal(err)
	}
}

// trust is a backend's configuration, with a certificate of this name; "": with none.
func (m *secured) trust(tb testing.TB, name string) *tls.Config {
	tb.Helper()
	cfg := &tls.Config{RootCAs: m.ca.Pool()}
	if name != "" {
		cert, err := m.ca.Certificate(name)
		if err != nil {
			tb.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg
}

// over publishes once over a connection of its own, and tells the name in the router's certificate.
func (m *secured) over(tb testing.TB, with credentials.TransportCredentials) (name string, err error) {
	tb.Helper()
	conn, err := grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(with))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var p peer.Peer
	_, err = pushmeshv1.NewPublishServiceClient(conn).Publish(tb.Context(), &pushmeshv1.PublishRequest{Topic: "live/1"}, grpc.Peer(&p))
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		name = info.State.PeerCertificates[0].DNSNames[0]
	}
	return name, err
}

func TestOnePortTakesTLSAndNone(t *testing.T) {
	t.Parallel()
	m := secureMesh(t, nil)
	if _, err := m.over(t, insecure.NewCredentials()); err != nil {
		t.Error(err)
	}
	if name, err := m.over(t, m.creds); err != nil || name != "first.example" {
		t.Errorf("the certificate of %q, %v", name, err)
	}
	if err := m.sample(t, `pushmesh_router_tls_handshakes_total{result="full"}`, "1"); err != nil {
		t.Error(err)
	}
}

// Who comes with TLS to a router without reads what is missing.
func TestTLSAtARouterWithoutIt(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	conn, err := grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = pushmeshv1.NewPublishServiceClient(conn).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/1"})
	if err == nil {
		t.Fatal("it is served")
	}
	if said, _ := dialfault.Explain(m.router.Addr(), code.From(err).Message); !strings.Contains(said, "does this port take TLS (a router with --tls-cert does)?") {
		t.Errorf("%q", said)
	}
}

// A stream goes on while the certificate changes under it. Who comes later gets the new one; files
// that are not good change nothing, and /readyz?verbose names them.
func TestCertificatesAreReloadedUnderAStream(t *testing.T) {
	t.Parallel()
	m := secureMesh(t, nil)
	stream, err := pushmeshv1.NewPublishServiceClient(m.from(t, "127.0.0.1")).PublishStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ref := uint64(0)
	goesOn := func() {
		t.Helper()
		ref++
		if err := stream.Send(&pushmeshv1.PublishStreamRequest{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: "live/1"}}); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil || resp.GetResults()[0].GetRef() != ref || resp.GetResults()[0].GetCode() != wirev1.Code_CODE_OK {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	gets := func(want string) {
		t.Helper()
		eventually(t, want, func() error {
			if name, err := m.over(t, m.creds); err != nil || name != want {
				return fmt.Errorf("the certificate of %q: %w", name, err)
			}
			return nil
		})
	}
	says := func(want string) {
		t.Helper()
		eventually(t, want, func() error {
			if ready, text := m.readyz(t); !ready || !strings.Contains(text, want) {
				return fmt.Errorf("ready: %t, %s", ready, text)
			}
			return nil
		})
	}
	goesOn()
	m.issue(t, "router", time.Now().Add(time.Hour), "second.example", "127.0.0.1")
	gets("second.example")
	goesOn()
	says("certificates: ok")
	if err := os.WriteFile(m.file("router.key"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	says("certificates: degraded: the new certificates can't be used, the old ones stay: certificate " + m.file("router.pem"))
	gets("second.example")
	m.issue(t, "router", time.Now().Add(time.Hour), "third.example", "127.0.0.1")
	gets("third.example")
	says("certificates: ok")
	goesOn()
	if err := m.sample(t, `pushmesh_router_tls_certificate_reloads_total{result="taken"}`, "0"); err == nil {
		t.Error("no reload is counted")
	}
}

// Every way in that is none: the backend reads why.
func TestBackendsWithoutTheRightCertificate(t *testing.T) {
	t.Parallel()
	m := mutual(t, nil)
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	certified := func(ca *testca.Authority, until time.Time) *tls.Config {
		cert, key, err := ca.Issue(until, "backend")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		// one that the router does not ask for too
		return &tls.Config{RootCAs: m.ca.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	with := func(change func(*tls.Config)) *tls.Config {
		cfg := m.trust(t, "backend")
		change(cfg)
		return cfg
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	for name, c := range map[string]struct {
		cfg  *tls.Config // nil: no TLS
		want string      // "": it is let in
	}{
		"TLS 1.3":               {m.trust(t, "backend"), ""},
		"TLS 1.2":               {with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), ""},
		"no TLS":                {nil, "takes connections with TLS alone"},
		"TLS 1.1":               {with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), "protocol version not supported"},
		"another name":          {with(func(c *tls.Config) { c.ServerName = "other.example" }), "not other.example"},
		"another authority":     {with(func(c *tls.Config) { c.RootCAs = other.Pool() }), "certificate signed by unknown authority"},
		"expired":               {with(func(c *tls.Config) { c.Time = func() time.Time { return tomorrow } }), "certificate has expired"},
		"no client certificate": {m.trust(t, ""), "it wants a certificate of its clients"},
		"a client certificate of another authority": {certified(other, tomorrow), "signed by an authority that it knows"},
		"an expired client certificate":             {certified(m.ca, time.Now().Add(-time.Minute)), "expired"},
	} {
		creds := insecure.NewCredentials()
		if c.cfg != nil {
			creds = credentials.NewTLS(c.cfg)
		}
		_, err := m.over(t, creds)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: it is let in", name)
			continue
		}
		if said, _ := dialfault.Explain(m.router.Addr(), code.From(err).Message); !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
	if _, refused := m.metric(t, `pushmesh_router_connections_refused_total{code="UNSUPPORTED"}`); refused == "0" {
		t.Error("nobody was refused for want of TLS")
	}
	if _, failed := m.metric(t, `pushmesh_router_tls_handshakes_total{result="failed"}`); failed == "0" {
		t.Error("no handshake has failed")
	}
}

// The same from another implementation of TLS.
func TestWithOpenSSL(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl")
	}
	m := secureMesh(t, func(m *secured, s *Settings) {
		m.issue(t, "revoked", time.Now().Add(time.Hour), "revoked")
		pair, err := tls.LoadX509KeyPair(m.file("revoked.pem"), m.file("revoked.key"))
		if err != nil {
			t.Fatal(err)
		}
		list, err := m.ca.Revoked(time.Now().Add(time.Hour), pair.Leaf)
		if err = errors.Join(err, os.WriteFile(m.file("crl.pem"), list, 0o600)); err != nil {
			t.Fatal(err)
		}
		s.TLSClientCA, s.TLSClientCRL, s.TLSRequired = m.file("ca.pem"), m.file("crl.pem"), true
	})
	m.issue(t, "backend", time.Now().Add(time.Hour), "backend")
	mine := []string{"-cert", m.file("backend.pem"), "-key", m.file("backend.key")}
	for name, c := range map[string]struct {
		args []string
		want string // of what it says
	}{
		"TLS 1.3":               {append([]string{"-tls1_3", "-verify_ip", "127.0.0.1"}, mine...), "Verification: OK"},
		"TLS 1.2":               {append([]string{"-tls1_2", "-verify_ip", "127.0.0.1"}, mine...), "Verification: OK"},
		"its protocol":          {mine, "ALPN protocol: h2"},
		"TLS 1.1":               {append([]string{"-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"}, mine...), "alert protocol version"},
		"weak ciphers":          {append([]string{"-tls1_2", "-cipher", "AES128-SHA256:AES256-SHA"}, mine...), "alert handshake failure"},
		"another name":          {append([]string{"-verify_hostname", "other.example"}, mine...), "ostname mismatch"},
		"expired":               {append([]string{"-attime", fmt.Sprint(time.Now().Add(2 * time.Hour).Unix())}, mine...), "certificate has expired"},
		"a revoked certificate": {[]string{"-tls1_2", "-cert", m.file("revoked.pem"), "-key", m.file("revoked.key")}, "alert bad certificate"},
		"no client certificate": {[]string{"-tls1_2"}, "alert"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, "openssl", append([]string{"s_client", "-connect", m.router.Addr(), "-CAfile", m.file("ca.pem"), "-verify_return_error", "-alpn", "h2"}, c.args...)...)
		cmd.Stdin = strings.NewReader("Q\n")
		said, _ := cmd.CombinedOutput() // the exit code differs by version
		cancel()
		if !bytes.Contains(said, []byte(c.want)) {
			t.Errorf("%s: openssl does not say %q:\n%s", name, c.want, said)
		}
	}
}

// openssl with certificates that are good, expired, of another name and revoked, on the port of
// backends.
func TestWithOpenSSLAndRevokedCertificates(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl")
	}
	m := revoking(t)
	m.issue(t, "backend", time.Now().Add(time.Hour), "backend")
	m.issue(t, "late", time.Now().Add(-time.Minute), "late")
	m.issue(t, "stolen", time.Now().Add(time.Hour), "stolen")
	m.revoke(t, "stolen")
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		for name, c := range map[string]struct{ cert, is, want string }{
			"good":       {"backend", "127.0.0.1", "Verification: OK"},
			"wrong name": {"backend", "127.0.0.2", "IP address mismatch"},
			"expired":    {"late", "127.0.0.1", "alert certificate expired"},
			"revoked":    {"stolen", "127.0.0.1", "alert bad certificate"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			cmd := exec.CommandContext(ctx, "openssl", "s_client", "-ign_eof", version, "-connect", m.router.Addr(), "-CAfile", m.file("ca.pem"), "-verify_return_error", "-alpn", "h2",
				"-verify_ip", c.is, "-cert", m.file(c.cert+".pem"), "-key", m.file(c.cert+".key"))
			// who is let in is sent away for it
			cmd.Stdin = strings.NewReader(strings.Repeat("no preface of HTTP/2\n", 4))
			// the exit code differs by version
			said, _ := cmd.CombinedOutput()
			cancel()
			if !bytes.Contains(said, []byte(c.want)) || strings.HasPrefix(c.want, "Ver") && bytes.Contains(said, []byte("alert ")) {
				t.Errorf("%s, %s: openssl does not say %q:\n%s", name, version, c.want, said)
			}
		}
	}
}

// revoking is a mesh whose router goes by a list of revoked certificates, of none at first.
func revoking(tb testing.TB) *secured {
	tb.Helper()
	m := secureMesh(tb, func(m *secured, s *Settings) {
		s.TLSClientCA, s.TLSClientCRL, s.TLSRequired = m.file("ca.pem"), m.file("crl.pem"), true
		m.list(tb)
	})
	m.creds = credentials.NewTLS(m.trust(tb, "backend"))
	return m
}

// list writes the CA's list, of the certificates in files.
func (m *secured) list(tb testing.TB, names ...string) {
	tb.Helper()
	var certs []*x509.Certificate
	for _, name := range names {
		pair, err := tls.LoadX509KeyPair(m.file(name+".pem"), m.file(name+".key"))
		if err != nil {
			tb.Fatal(err)
		}
		certs = append(certs, pair.Leaf)
	}
	list, err := m.ca.Revoked(time.Now().Add(time.Hour), certs...)
	if err = errors.Join(err, os.WriteFile(m.file("crl.pem"), list, 0o600)); err != nil {
		tb.Fatal(err)
	}
}

// revoke is list, and waits until the router goes by it.
func (m *secured) revoke(tb testing.TB, names ...string) {
	tb.Helper()
	before, _ := m.router.certs.Reloads()
	m.list(tb, names...)
	m.taken(tb, before)
}

// taken waits until the router has taken more changes of its files than before.
func (m *secured) taken(tb testing.TB, before uint64) {
	tb.Helper()
	eventually(tb, "the files are read again", func() error {
		if now, failed := m.router.certs.Reloads(); now == before {
			return fmt.Errorf("taken %d times, failed %d", now, failed)
		}
		return nil
	})
}

// A stream of a backend ends when its certificate is revoked, and when its CA is taken out, and
// those of others go on. Neither comes back with the ticket that it has.
func TestAStreamEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	m := revoking(t)
	m.issue(t, "stolen", time.Now().Add(time.Hour), "stolen")
	m.issue(t, "good", time.Now().Add(time.Hour), "good")
	stream := func(name string) (pushmeshv1.PublishService_PublishStreamClient, *grpc.ClientConn) {
		t.Helper()
		cert, err := tls.LoadX509KeyPair(m.file(name+".pem"), m.file(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		cfg := &tls.Config{RootCAs: m.ca.Pool(), Certificates: []tls.Certificate{cert}, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
		conn, err := grpc.NewClient(m.router.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		s, err := pushmeshv1.NewPublishServiceClient(conn).PublishStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s, conn
	}
	publish := func(s pushmeshv1.PublishService_PublishStreamClient) error {
		if err := s.Send(&pushmeshv1.PublishStreamRequest{Batch: []*pushmeshv1.PublishStreamRequest_Item{{Ref: 1, Message: &pushmeshv1.PublishRequest{Topic: "live/1"}}}}); err != nil {
			_, err = s.Recv()
			return err
		}
		_, err := s.Recv()
		return err
	}
	stolen, again := stream("stolen")
	good, _ := stream("good")
	for name, s := range map[string]pushmeshv1.PublishService_PublishStreamClient{"stolen": stolen, "good": good} {
		if err := publish(s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	m.revoke(t, "stolen")
	if _, err := stolen.Recv(); err == nil { // it waits until the stream ends
		t.Error("something came")
	}
	if _, err := pushmeshv1.NewPublishServiceClient(again).Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "live/1"}); err == nil {
		t.Error("it comes back")
	}
	if err := publish(good); err != nil {
		t.Errorf("another one's: %v", err)
	}
	if err := m.sample(t, "pushmesh_router_tls_connections_ended_total", "1"); err != nil {
		t.Error(err)
	}
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := m.router.certs.Reloads()
	none, err := other.Revoked(time.Now().Add(time.Hour))
	if err = errors.Join(err, os.WriteFile(m.file("ca.pem"), other.PEM(), 0o600), os.WriteFile(m.file("crl.pem"), none, 0o600)); err != nil {
		t.Fatal(err)
	}
	m.taken(t, before)
	if _, err := good.Recv(); err == nil {
		t.Error("something came")
	}
}

// What names a producer is its certificate, whatever its address and its token: each has a limit of
// its own.
func TestLimitsGoByCertificate(t *testing.T) {
	t.Parallel()
	m := mutual(t, func(s *Settings) { s.ProducerRate = 1 })
	limited := func(name, token string) bool {
		m.creds = credentials.NewTLS(m.trust(t, name))
		_, err := pushmeshv1.NewPublishServiceClient(m.from(t, "127.0.0.1")).Publish(named(t.Context(), token), &pushmeshv1.PublishRequest{Topic: "live/1"})
		if err != nil && code.Of(err) != wirev1.Code_CODE_RATE_LIMITED {
			t.Fatal(err)
		}
		return err != nil
	}
	eventually(t, "a is at its limit", func() error {
		if !limited("a", fmt.Sprint(time.Now())) {
			return errors.New("not yet")
		}
		return nil
	})
	if limited("b", "") {
		t.Error("b is limited by what a does")
	}
}

// Connections with TLS count, and those whose handshake has not ended, too.
func TestConnectionsWithTLSAreBounded(t *testing.T) {
	t.Parallel()
	m := mutual(t, func(s *Settings) { s.MaxConnections = 3 })
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"}) // that is the first one
	for range 2 {
		conn, err := tls.Dial("tcp", m.router.Addr(), m.trust(t, "backend"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	more, err := net.Dial("tcp", m.router.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := more.Read(make([]byte, 1)); err == nil {
		t.Error("one more was served")
	}
	_ = more.Close()
	eventually(t, "counted", func() error {
		return m.sample(t, `pushmesh_router_connections_refused_total{code="TOO_MANY_CONNECTIONS"}`, "1")
	})
	m.publish(t, &pushmeshv1.PublishRequest{Topic: "room/1"})
	eventually(t, "those that say nothing are let go", func() error { return m.sample(t, "pushmesh_router_connections", "1") })
}

// Handshakes of one address are a part of its turns: calls of another one go on being answered.
func TestHandshakesOfALateRouterTakeTurns(t *testing.T) {
	m := mutual(t, nil)
	cfg := m.trust(t, "flood")
	cfg.NextProtos = []string{"h2"}
	by := &tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}, Config: cfg}
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	for range 200 {
		flood.Go(func() {
			for ctx.Err() == nil {
				if c, err := by.DialContext(ctx, "tcp", m.router.Addr()); err == nil {
					// or the ports of this host would run out
					_ = c.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
			}
		})
	}
	end := time.Now().Add(patience)
	for calls := 0; calls < 20 || m.router.front.turns.Waited() == 0; calls++ {
		// A handshake that had no turn in its time is tried again, as every gRPC client does it.
		ctx, cancel := context.WithDeadline(t.Context(), end)
		_, err := m.pub.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "live/honest"}, grpc.WaitForReady(true))
		cancel()
		if err != nil && !refusedForNow(err) || time.Now().After(end) {
			t.Fatalf("publish: %v; %d turns were waited for in %d calls", err, m.router.front.turns.Waited(), calls)
		}
	}
}

func TestARouterStartsNotWithoutItsCertificate(t *testing.T) {
	t.Parallel()
	if _, err := New(t.Context(), Settings{Open: true, Flags: tierauth.Flags{PlainTiers: true}, TLSCerts: []string{"/nowhere"}, TLSKeys: []string{"/nowhere"}}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("got %v", err)
	}
	for want, s := range map[string]Settings{
		"one key for each certificate": {TLSCerts: []string{"a", "b"}, TLSKeys: []string{"a"}},
		"need --tls-cert":              {TLSClientCA: "ca"},
		"must be 1.2 or 1.3":           {TLSMinVersion: "1.1"},
		"--tls-reload":                 {TLSReload: -1},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
