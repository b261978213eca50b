package pushmesh

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// ownCertificate is for localhost alone, and signed by itself.
func ownCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestTLS has a subscriber look for the name that it was given, whatever address that has, and come
// back with a ticket.
func TestTLS(t *testing.T) {
	cert, pool := ownCertificate(t)
	e := newFakeEdgeWith(t, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{wire.ALPN}})
	_, port, err := net.SplitHostPort(e.addr())
	if err != nil {
		t.Fatal(err)
	}
	newTestSubscriber(t, SubscriberConfig{
		Addrs: []string{"localhost:" + port}, TLS: &tls.Config{RootCAs: pool},
		lookup: func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil },
	})
	for i := range 2 {
		c := e.welcome()
		s := c.conn.(*tls.Conn).ConnectionState()
		if s.NegotiatedProtocol != wire.ALPN || s.ServerName != "localhost" || s.DidResume != (i == 1) {
			t.Fatalf("connection %d: protocol %q, name %q, resumed %v", i, s.NegotiatedProtocol, s.ServerName, s.DidResume)
		}
		c.close()
	}
}

// TestTLSIsVerified has a subscriber take no edge whose certificate is for another name.
func TestTLSIsVerified(t *testing.T) {
	cert, pool := ownCertificate(t)
	e := newFakeEdgeWith(t, &tls.Config{Certificates: []tls.Certificate{cert}})
	shaking := make(chan struct{})
	go func() {
		defer close(shaking)
		for range 2 {
			_ = (<-e.conns).conn.(*tls.Conn).Handshake() // fails where the client does not trust it
		}
	}()
	defer func() { <-shaking }()
	cfg := SubscriberConfig{Addrs: []string{e.addr()}, TLS: &tls.Config{RootCAs: pool}}
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	s := &Subscriber{cfg: cfg}
	if _, err := s.dial(t.Context(), reconnect.Place{Addr: e.addr(), Name: e.addr()}); err == nil {
		t.Fatal("127.0.0.1 is taken for localhost")
	}
	conn, err := s.dial(t.Context(), reconnect.Place{Addr: e.addr(), Name: "localhost:7400"})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
