package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// TestCertificatesAreReloaded has a connection that goes on while the files change under it; who
// comes later gets the new certificate, of the name asked for.
func TestCertificatesAreReloaded(t *testing.T) {
	w := newWorld(t)
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir, s := t.TempDir(), w.settings("e1")
	certificate := func(file string, names ...string) {
		t.Helper()
		cert, key, err := ca.Write(dir, file, names...)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.TLSCerts) < 2 {
			s.TLSCerts, s.TLSKeys = append(s.TLSCerts, cert), append(s.TLSKeys, key)
		}
	}
	certificate("a", "a.example")
	certificate("b", "b.example")
	s.TLSReload = 20 * time.Millisecond
	e, _ := w.edgeWith(s)
	dial := func(name string) (c *client, got string, err error) {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), ServerName: name}}).DialContext(t.Context(), "tcp", e.Addr())
		if err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { conn.Close() })
		c = &client{t: t, conn: conn, seen: map[string]uint64{}}
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
		c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
		return c, conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames[0], nil
	}
	old, got, err := dial("b.example")
	if err != nil || got != "b.example" {
		t.Fatalf("got the certificate of %s, %v", got, err)
	}
	certificate("b", "c.example")
	edgetest.WaitFor(t, "the new certificate", func() error {
		_, _, err := dial("c.example")
		return err
	})
	if _, got, err = dial("b.example"); err == nil {
		t.Fatalf("got the certificate of %s: b.example is no more", got)
	}
	// The new certificate of b may have been seen before its key: that is a failure, too.
	_, before := e.certs.Reloads()
	if err := os.WriteFile(filepath.Join(dir, "a.key"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	edgetest.WaitFor(t, "the bad key is seen", func() error {
		if _, failed := e.certs.Reloads(); failed == before {
			return errors.New("no reload has failed since")
		}
		return nil
	})
	if _, got, err = dial("a.example"); err != nil || got != "a.example" {
		t.Fatalf("got the certificate of %s, %v", got, err)
	}
	old.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1})
	old.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
}

func TestClientCertificates(t *testing.T) {
	w := newWorld(t)
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir, s := t.TempDir(), w.settings("e1")
	cert, key, err := ca.Write(dir, "edge", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	s.TLSCerts, s.TLSKeys, s.TLSClientCA, s.TLSRequired = []string{cert}, []string{key}, filepath.Join(dir, "ca.pem"), true
	if err := os.WriteFile(s.TLSClientCA, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	e, _ := w.edgeWith(s)
	mine, err := ca.Certificate("client")
	if err != nil {
		t.Fatal(err)
	}
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	strange, err := other.Certificate("client")
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		certs []tls.Certificate
		good  bool
	}{"none": {}, "another authority's": {certs: []tls.Certificate{strange}}, "the authority's": {certs: []tls.Certificate{mine}, good: true}} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			cfg := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", MaxVersion: version, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				// one that the edge does not ask for too
				return &append(x.certs, tls.Certificate{})[0], nil
			}}
			conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", e.Addr())
			if err == nil {
				_ = conn.SetReadDeadline(time.Now().Add(edgetest.Patience))
				c := &client{t: t, conn: conn}
				c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
				_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the client is told only now
				_ = conn.Close()
			}
			if (err == nil) != x.good {
				t.Errorf("%s, version %x: %v", name, version, err)
			}
		}
	}
	edgetest.WaitFor(t, "four are refused", func() error { return metricIs(e, `pushmesh_edge_closes_total{code="UNAUTHENTICATED"}`, "4") })
}

// Clients' certificates that are revoked are refused, and the CA is read again, like the lists.
func TestClientCertificatesAreRevoked(t *testing.T) {
	w := newWorld(t)
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir, s := t.TempDir(), w.settings("e1")
	cert, key, err := ca.Write(dir, "edge", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte, err error) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err = errors.Join(err, os.WriteFile(at, content, 0o600)); err != nil {
			t.Fatal(err)
		}
		return at
	}
	none, err := ca.Revoked(time.Now().Add(time.Hour))
	s.TLSCerts, s.TLSKeys, s.TLSRequired, s.TLSReload = []string{cert}, []string{key}, true, 10*time.Millisecond
	s.TLSClientCA, s.TLSClientCRL = write("ca.pem", ca.PEM(), nil), write("crl.pem", none, err)
	e, _ := w.edgeWith(s)
	pem, private, err := ca.Issue(time.Now().Add(time.Hour), "client")
	if err != nil {
		t.Fatal(err)
	}
	mine, err := tls.X509KeyPair(pem, private)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{mine}, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	let := func() (resumed bool, err error) {
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", e.Addr())
		if err != nil {
			return false, err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(edgetest.Patience))
		c := &client{t: t, conn: conn}
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
		_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the client is told only now
		return conn.(*tls.Conn).ConnectionState().DidResume, err
	}
	for n := range 2 {
		if resumed, err := let(); err != nil || resumed != (n == 1) {
			t.Fatalf("connection %d: resumed %t, %v", n, resumed, err)
		}
	}
	taken := func(change func()) {
		t.Helper()
		before, _ := e.certs.Reloads()
		change()
		edgetest.WaitFor(t, "the files are read again", func() error {
			if now, failed := e.certs.Reloads(); now == before {
				return fmt.Errorf("taken %d times, failed %d", now, failed)
			}
			return nil
		})
	}
	list, err := ca.Revoked(time.Now().Add(time.Hour), mine.Leaf)
	taken(func() { write("crl.pem", list, err) })
	if _, err := let(); err == nil {
		t.Error("a revoked client is let in")
	}
	edgetest.WaitFor(t, "it counts as unauthenticated", func() error { return metricIs(e, `pushmesh_edge_closes_total{code="UNAUTHENTICATED"}`, "1") })
	taken(func() { write("crl.pem", none, nil) })
	if _, err := let(); err != nil {
		t.Errorf("a list without it: %v", err)
	}
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	strange, err := other.Revoked(time.Now().Add(time.Hour))
	taken(func() {
		write("ca.pem", other.PEM(), nil)
		write("crl.pem", strange, err)
	})
	if _, err := let(); err == nil {
		t.Error("a client of a CA that was taken out is let in")
	}
}

func TestSettingsOfTLS(t *testing.T) {
	for want, s := range map[string]Settings{
		"one key for each certificate": {TLSCerts: []string{"a", "b"}, TLSKeys: []string{"a"}},
		"need --tls-cert":              {TLSRequired: true},
		"must be 1.2 or 1.3":           {TLSMinVersion: "1.1"},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := New(t.Context(), Settings{Flags: tierauth.Flags{PlainTiers: true}, Open: true, TLSCerts: []string{"/nowhere"}, TLSKeys: []string{"/nowhere"}}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Error("an edge starts without its certificate")
	}
}

// metricIs asks the edge.
func metricIs(e *Edge, name, want string) error {
	resp, err := http.Get("http://" + e.HTTPAddr() + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), name+" "+want+"\n") {
		err = fmt.Errorf("%s is not %s", name, want)
	}
	return err
}
