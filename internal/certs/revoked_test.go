package certs

import (
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

// handshake has a client connect to a server of cfg, read one byte, and say what went wrong at
// either end.
func handshake(t *testing.T, server, client *tls.Config) (resumed bool, err error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			secure := tls.Server(conn, server)
			if err = secure.Handshake(); err == nil {
				_, err = secure.Write([]byte{1})
			}
			_ = conn.Close()
		}
		served <- err
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err == nil {
		resumed = conn.ConnectionState().DidResume
		_, err = io.ReadFull(conn, make([]byte, 1)) // the ticket is read with it
		_ = conn.Close()
	}
	if fault := <-served; fault != nil {
		return resumed, fault
	}
	return resumed, err
}

// A client whose certificate is revoked is refused from the next look at the file on, also where it
// goes on with an earlier connection, and so is one whose CA is no longer in the file; nobody else
// is. A list that can't be used changes nothing, and one that has ended lets nobody in.
func TestRevokedCertificatesAreRefused(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, err := ca.Write(dir, "server", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	list := func(by *testca.Authority, until time.Time, revoked ...*x509.Certificate) []byte {
		t.Helper()
		l, err := by.Revoked(until, revoked...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	soon := time.Now().Add(time.Hour)
	s := Settings{
		Cert: []string{cert}, Key: []string{key}, Reload: time.Hour, MinVersion: "1.2", Required: true,
		ClientCA: file("ca.pem", ca.PEM()), ClientCRL: file("crl.pem", list(ca, soon)),
	}
	keeper, server, err := s.Open(slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]*tls.Config{}
	leaf := map[string]*x509.Certificate{}
	for _, name := range []string{"ann", "bob"} {
		mine, err := ca.Certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		leaf[name] = mine.Leaf
		clients[name] = &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{mine}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		expect := func(what, name, refusal string, resumes bool) {
			t.Helper()
			client := clients[name].Clone()
			client.MaxVersion = version
			resumed, err := handshake(t, server, client)
			switch {
			case refusal == "" && err != nil, refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)):
				t.Errorf("%s, %s, version %x: %v, not %q", what, name, version, err, refusal)
			case resumed != resumes && refusal == "":
				t.Errorf("%s, %s, version %x: resumed is %v", what, name, version, resumed)
			}
		}
		for _, client := range clients {
			client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		expect("nobody is revoked", "ann", "", false)
		expect("again", "ann", "", true)
		expect("nobody is revoked", "bob", "", false)
		file("crl.pem", list(ca, soon, leaf["ann"]))
		keeper.look()
		keeper.look()
		expect("revoked, resuming", "ann", "is revoked", true)
		clients["ann"].ClientSessionCache = tls.NewLRUClientSessionCache(1)
		expect("revoked", "ann", "is revoked", false)
		expect("another is revoked", "bob", "", false)
		file("crl.pem", list(other, soon, leaf["bob"]))
		keeper.look()
		keeper.look()
		if err := keeper.Check(); err == nil || !strings.Contains(err.Error(), "is signed by no certificate of the CA's file") {
			t.Errorf("a stranger's list: %v", err)
		}
		expect("a list that can't be used", "bob", "", true)
		expect("a list that can't be used", "ann", "is revoked", false)
		file("crl.pem", list(ca, time.Now().Add(-time.Minute)))
		keeper.look()
		keeper.look()
		expect("the list has ended", "bob", "ended at", true)
		if err := keeper.Check(); err == nil || !strings.Contains(err.Error(), "ended at") {
			t.Errorf("a list that has ended: %v", err)
		}
		file("crl.pem", list(ca, soon))
		keeper.look()
		keeper.look()
		if err := keeper.Check(); err != nil {
			t.Error(err)
		}
		expect("all is well again", "ann", "", false)
		// The CA changes as well.
		file("ca.pem", other.PEM())
		file("crl.pem", list(other, soon))
		keeper.look()
		keeper.look()
		expect("another CA, with a ticket", "bob", "unknown authority", false)
		clients["ann"].ClientSessionCache = tls.NewLRUClientSessionCache(1)
		expect("another CA", "ann", "unknown authority", false)
		file("ca.pem", ca.PEM())
		file("crl.pem", list(ca, soon))
		keeper.look()
		keeper.look()
	}
}

// Files that hold something else are refused, each with what is wrong.
func TestListsThatAreNone(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cas, err := certificates("ca.pem", ca.PEM())
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string]string{
		"no list of revoked certificates": "no PEM",
		"holds a CERTIFICATE":             string(ca.PEM()),
		"malformed":                       string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte{0x30, 1}})),
	} {
		if _, err := parseLists("crl.pem", []byte(data), cas); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if err := (Settings{Cert: []string{"a"}, Key: []string{"a"}, Reload: time.Second, MinVersion: "1.3", ClientCRL: "x"}).Check(); err == nil || !strings.Contains(err.Error(), "needs --tls-client-ca") {
		t.Errorf("a list without a CA: %v", err)
	}
}

// FuzzLists reads lists of anybody.
func FuzzLists(f *testing.F) {
	ca, err := testca.New()
	if err != nil {
		f.Fatal(err)
	}
	cas, err := certificates("ca.pem", ca.PEM())
	if err != nil {
		f.Fatal(err)
	}
	good, err := ca.Revoked(time.Now().Add(time.Hour), cas[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN X509 CRL-----\n-----END X509 CRL-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseLists("crl.pem", data, cas)
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%d lists, %v", len(all), err)
		}
		for _, l := range all {
			if l.issuer == nil {
				t.Fatal("a list of nobody")
			}
		}
	})
}
