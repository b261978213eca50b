package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/grpcserve"
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

// secureRouter is a port as a router's, with no services but health, which wants TLS and a
// certificate.
type secureRouter struct {
	*grpcserve.Server
	shaken  atomic.Int64
	trust   string   // file
	flags   []string // of TLS
	another string   // file of another authority
}

func startRouter(t *testing.T) *secureRouter {
	t.Helper()
	r, dir := &secureRouter{}, t.TempDir()
	ca, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	other, err := testca.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Write(dir, "both", "router.example")
	if err != nil {
		t.Fatal(err)
	}
	r.trust, r.another = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other.pem")
	if err := errors.Join(os.WriteFile(r.trust, ca.PEM(), 0o600), os.WriteFile(r.another, other.PEM(), 0o600)); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if r.Server, err = grpcserve.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	r.Serve(grpcserve.Config{
		MinPing: time.Second, Register: func(grpc.ServiceRegistrar) {}, TLS: &grpcserve.TLS{
			Config:   &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()},
			Required: true, Began: func(b grpcserve.Beginning, _ net.Addr, _ error) {
				if b == grpcserve.Full || b == grpcserve.Resumed {
					r.shaken.Add(1)
				}
			},
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	r.flags = []string{"--tls-ca", r.trust, "--tls-server-name", "router.example", "--tls-cert", cert, "--tls-key", key}
	return r
}

// callers are the commands that call a router, without the flags that lead to it.
func callers() [][]string {
	return [][]string{
		{"pub", "a", "x"},
		{"cancel", "00000000-0000-7000-8000-000000000000"},
		{"sub", "a", "--grpc", "--timeout", "2s"},
		{"history", "a"},
		{"events", "--timeout", "2s"},
		{"claim", "list", "a"},
		{"namespace", "list"},
		{"disconnect", "--user", "u"},
		{"dlq", "list", "a"},
		{"doctor"},
		{"presence", "count", "a"},
		{"model", "list"},
		{"rank", "--weights", "1=1"},
		{"rebalance", "e", "--share", "0.1"},
		{"store", "accept-server", "--same-epoch"},
		{"session", "list", "--user", "u"},
		{"top", "--once"},
		{"auth", "revocations"},
	}
}

// Every command that calls a router does so with TLS where flags or variables say so, and says
// plainly what is missing.
func TestCommandsReachARouterWithTLS(t *testing.T) {
	r := startRouter(t)
	for _, command := range callers() {
		t.Run(strings.Join(command, " "), func(t *testing.T) { r.isReached(t, command) })
	}
	t.Run("pub --lines", func(t *testing.T) { // without TLS it goes on trying
		before := r.shaken.Load()
		c := start(t, strings.NewReader("x\n"), slices.Concat([]string{"pub", "a", "--lines", "--router", r.Addr()}, r.flags)...)
		if code := c.wait(); code == 0 || r.shaken.Load() == before {
			t.Errorf("exit code %d: %s", code, c.err.String())
		}
	})
	// variables do as well
	for i, v := range []string{"PUSHMESH_TLS_CA", "PUSHMESH_TLS_SERVER_NAME", "PUSHMESH_TLS_CERT", "PUSHMESH_TLS_KEY"} {
		t.Setenv(v, r.flags[2*i+1])
	}
	before := r.shaken.Load()
	c := start(t, strings.NewReader(""), "history", "a", "--router", r.Addr())
	c.wait()
	if r.shaken.Load() != before+1 {
		t.Errorf("exit code %d: %s", c.code, c.err.String())
	}
}

func (r *secureRouter) isReached(t *testing.T, command []string) {
	t.Helper()
	run := func(flags []string) (code int, said string) {
		c := start(t, strings.NewReader("1 1:0.5\n"), slices.Concat(command, []string{"--router", r.Addr()}, flags)...)
		code = c.wait()
		return code, c.out.String() + c.err.String()
	}
	before := r.shaken.Load()
	if code, said := run(r.flags); r.shaken.Load() == before || !strings.Contains(said, "unknown service") {
		t.Errorf("it does not come to the router; exit code %d: %s", code, said)
	}
	for want, flags := range map[string][]string{
		"takes connections with TLS alone":         nil,
		"it wants a certificate of its clients":    r.flags[:4],
		"certificate signed by unknown authority":  {"--tls-ca", r.another, "--tls-server-name", "router.example"},
		"not other.example":                        {"--tls-ca", r.trust, "--tls-server-name", "other.example"},
		"--tls-ca: open /nowhere":                  {"--tls-ca", "/nowhere"},
		"--tls-cert and --tls-key: open /nowhere:": {"--tls-cert", "/nowhere"},
	} {
		if code, said := run(flags); code == 0 || !strings.Contains(said, want) {
			t.Errorf("%q: exit code %d, %s, want %q", flags, code, said, want)
		}
	}
}
