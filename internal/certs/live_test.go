package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
)

// clients of a server that wants certificates.
type clients struct {
	*files
	keeper *Keeper
	cfg    *tls.Config
	log    bytes.Buffer
}

// must is a value that came without an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (c *clients) file(name string, content ...[]byte) string {
	c.Helper()
	at := filepath.Join(c.dir, name)
	if err := os.WriteFile(at, bytes.Join(content, nil), 0o600); err != nil {
		c.Fatal(err)
	}
	return at
}

func newClients(t *testing.T) *clients {
	f, _ := newFiles(t)
	return &clients{files: f}
}

// open makes the server; lists nil: without any.
func (c *clients) open(lists []byte) error {
	s := Settings{Cert: []string{filepath.Join(c.dir, "a.pem")}, Key: []string{filepath.Join(c.dir, "a.key")}, Reload: time.Hour, MinVersion: "1.2", Required: true}
	s.ClientCA = c.file("ca.pem", c.ca.PEM())
	if lists != nil {
		s.ClientCRL = c.file("crl.pem", lists)
	}
	if err := s.Check(); err != nil {
		c.Fatal(err)
	}
	var err error
	c.keeper, c.cfg, err = s.Open(slog.New(slog.NewTextHandler(&c.log, nil)), "h2")
	return err
}

// looks has the files read as often as a change needs.
func (c *clients) looks() {
	c.keeper.look()
	c.keeper.look()
}

// leaf is a certificate of a client, with the chain that it sends.
func (c *clients) leaf(by *testca.Authority, chain ...[]byte) (pem []byte, cert tls.Certificate) {
	c.Helper()
	pem, key, err := by.Issue(time.Now().Add(time.Hour), "client")
	if err == nil {
		cert, err = tls.X509KeyPair(append(bytes.Clone(pem), bytes.Join(chain, nil)...), key)
	}
	if err != nil {
		c.Fatal(err)
	}
	return pem, cert
}

// shake is a handshake, and what the server has of it; after one that is good a byte came back, and
// a ticket before it.
func (c *clients) shake(cfg *tls.Config) (s tls.ConnectionState, err error) {
	c.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	read := make(chan error, 1)
	go func() {
		conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
			_ = conn.Close()
		}
		read <- err
	}()
	raw, err := l.Accept()
	if err != nil {
		c.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Server(raw, c.cfg)
	if err = conn.Handshake(); err == nil {
		_, err = conn.Write([]byte{1})
	}
	s = conn.ConnectionState()
	_ = raw.(*net.TCPConn).CloseWrite()
	if told := <-read; (told == nil) != (err == nil) {
		c.Fatalf("the server says %v, the client %v", err, told)
	}
	return s, err
}

func (c *clients) with(cert tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: c.ca.Pool(), ServerName: "a.example", Certificates: []tls.Certificate{cert}}
}

// list of a CA, good for an hour.
func (c *clients) list(by *testca.Authority, revoked ...[]byte) []byte {
	c.Helper()
	var all []*x509.Certificate
	for _, one := range revoked {
		block, _ := pem.Decode(one)
		all = append(all, must(x509.ParseCertificate(block.Bytes))(c.T))
	}
	b, err := by.Revoked(time.Now().Add(time.Hour), all...)
	if err != nil {
		c.Fatal(err)
	}
	return b
}

// Who comes back with a ticket is looked at like who comes for the first time.
func TestATicketOutlivesNoRevocation(t *testing.T) {
	for name, change := range map[string]func(c *clients, leaf []byte){
		"revoked": func(c *clients, leaf []byte) { c.file("crl.pem", c.list(c.ca, leaf)) },
		"its CA is out": func(c *clients, _ []byte) {
			other := must(testca.New())(c.T)
			c.file("ca.pem", other.PEM())
			c.file("crl.pem", c.list(other))
		},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			c := newClients(t)
			leaf, mine := c.leaf(c.ca)
			if err := c.open(c.list(c.ca)); err != nil {
				t.Fatal(err)
			}
			cfg := c.with(mine)
			cfg.MaxVersion, cfg.ClientSessionCache = version, tls.NewLRUClientSessionCache(4)
			for n := range 2 {
				s, err := c.shake(cfg)
				if err != nil || s.DidResume != (n == 1) {
					t.Fatalf("%s, version %x, handshake %d: resumed %t, %v", name, version, n, s.DidResume, err)
				}
			}
			change(c, leaf)
			c.looks()
			if _, err := c.shake(cfg); err == nil {
				t.Errorf("%s, version %x: resumed", name, version)
			}
			// who has another certificate by then is let in, whatever ticket it has
			c.file("ca.pem", c.ca.PEM())
			c.file("crl.pem", c.list(c.ca, leaf))
			c.looks()
			_, next := c.leaf(c.ca)
			cfg.Certificates = []tls.Certificate{next}
			if _, err := c.shake(cfg); err != nil {
				t.Errorf("%s, version %x: with a new certificate: %v", name, version, err)
			}
		}
	}
}

// The CA and the lists are read again, once they are whole, and connections that lose by that end.
func TestConnectionsEndWithTheirCertificate(t *testing.T) {
	c := newClients(t)
	leaf, mine := c.leaf(c.ca)
	_, other := c.leaf(c.ca)
	if err := c.open(c.list(c.ca)); err != nil {
		t.Fatal(err)
	}
	ended := map[string]int{}
	hold := func(name string, s tls.ConnectionState) func() {
		return c.keeper.Hold(s, func() { ended[name]++ })
	}
	first, second := must(c.shake(c.with(mine)))(t), must(c.shake(c.with(other)))(t)
	hold("mine", first)
	hold("other", second)
	hold("gone", first)()
	list := c.list(c.ca, leaf)
	c.file("crl.pem", list[:len(list)/2])
	c.keeper.look()
	if _, failed := c.keeper.Reloads(); failed != 0 {
		t.Error("half of a list counts as a list")
	}
	c.file("crl.pem", list)
	c.keeper.look()
	if len(ended) != 0 {
		t.Errorf("%v end before two looks have seen the same", ended)
	}
	c.keeper.look()
	if ended["mine"] != 1 || len(ended) != 1 {
		t.Errorf("what ended: %v", ended)
	}
	hold("late", first)
	if ended["late"] != 1 {
		t.Error("one that was verified before the change and held after it goes on")
	}
	// the CA's file has another CA beside it, then alone
	next := must(testca.New())(t)
	c.file("ca.pem", c.ca.PEM(), next.PEM())
	c.looks()
	if ended["other"] != 0 {
		t.Error("a second CA ends connections")
	}
	_, later := c.leaf(next)
	if _, err := c.shake(c.with(later)); err != nil {
		t.Errorf("of a CA that was added: %v", err)
	}
	c.file("ca.pem", next.PEM())
	c.file("crl.pem", c.list(next))
	c.looks()
	if ended["other"] != 1 || c.keeper.Ended() != 3 {
		t.Errorf("what ended: %v, %d", ended, c.keeper.Ended())
	}
	if _, err := c.shake(c.with(other)); err == nil {
		t.Error("of a CA that was taken out")
	}
	c.file("ca.pem")
	c.looks()
	if err := c.keeper.Check(); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM") {
		t.Errorf("the check says %v", err)
	}
	if _, err := c.shake(c.with(later)); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}
