package cli

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// TestSubComesWithTLS has the command shake hands with a server that asks for a certificate of a
// client.
func TestSubComesWithTLS(t *testing.T) {
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key, err := ca.Write(dir, "both", "edge.example")
	if err != nil {
		t.Fatal(err)
	}
	trust := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(trust, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	secure := tls.NewListener(ln, &tls.Config{
		Certificates: []tls.Certificate{pair}, NextProtos: []string{wire.ALPN}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	})
	start(t, strings.NewReader(""), "sub", "a", "--edge", ln.Addr().String(), "--tls-ca", trust, "--tls-server-name", "edge.example", "--tls-cert", cert, "--tls-key", key)
	conn, err := secure.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if ft, _, err := wire.Read(conn, nil, wire.MaxHello); err != nil {
		t.Fatalf("%v, %v", ft, err)
	}
	if s := conn.(*tls.Conn).ConnectionState(); s.NegotiatedProtocol != wire.ALPN || s.ServerName != "edge.example" || len(s.PeerCertificates) != 1 {
		t.Fatalf("protocol %q, name %q, %d certificates", s.NegotiatedProtocol, s.ServerName, len(s.PeerCertificates))
	}
	wrong := ran(t, "", "sub", "a", "--tls-ca", key)
	if wrong.code == 0 || !strings.Contains(wrong.err.String(), "--tls-ca") {
		t.Fatalf("exit code %d: %s", wrong.code, wrong.err.String())
	}
}
