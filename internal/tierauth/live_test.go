package tierauth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// revoke makes the CA's list, of the certificates in files.
func (m *mesh) revoke(until time.Time, files ...string) {
	m.t.Helper()
	var certs []*x509.Certificate
	for _, name := range files {
		c, err := ReadCertificate(m.file(name + ".pem"))
		need(m.t, err)
		certs = append(certs, c)
	}
	list, err := m.Revoked(until, certs...)
	need(m.t, err)
	need(m.t, place(m.file("crl.pem"), list, 0o600))
}

// listed is a node that goes by the list, and looks at its files.
func (m *mesh) listed(tier Tier) *Identity {
	m.t.Helper()
	f := m.flags(string(tier), tier.Name())
	f.MeshCRL = m.file("crl.pem")
	i, err := m.open(tier, f, nil)
	need(m.t, err)
	need(m.t, i.Start(m.t.Context()))
	m.t.Cleanup(func() { need(m.t, i.Stop(context.Background())) })
	return i
}

// dialed connects to a server, and tells when a connection ends.
func dialed(t *testing.T, addr string, ended chan<- struct{}) grpc.DialOption {
	t.Helper()
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		return &told{Conn: conn, ended: ended}, err
	})
}

// told is a connection that tells of its end.
type told struct {
	net.Conn
	ended chan<- struct{}
}

// Read implements net.Conn.
func (c *told) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		select {
		case c.ended <- struct{}{}:
		default:
		}
	}
	return n, err
}

// A certificate that is revoked ends the connections that have begun with it, of who calls and of
// who is called, and begins none.
func TestARevokedTierIsCutOff(t *testing.T) {
	for _, revoked := range []Tier{Router, Store} {
		t.Run(string(revoked), func(t *testing.T) {
			m := newMesh(t)
			m.revoke(time.Now().Add(time.Hour))
			// who is revoked does not know it: the other one cuts it off
			nodes := map[Tier]*Identity{}
			for _, tier := range []Tier{Router, Store} {
				if tier == revoked {
					nodes[tier] = m.node(tier)
				} else {
					nodes[tier] = m.listed(tier)
				}
			}
			addr := m.serve(nodes[Store])
			ended := make(chan struct{}, 1)
			conn, err := grpc.NewClient("passthrough:///x", nodes[Router].DialOption(Store), dialed(t, addr, ended))
			need(t, err)
			defer conn.Close()
			call := func() error {
				_, err := meshv1.NewStoreServiceClient(conn).Owners(t.Context(), &meshv1.OwnersRequest{})
				return err
			}
			if err := call(); status.Code(err) != codes.Unimplemented {
				t.Fatal(err)
			}
			m.revoke(time.Now().Add(time.Hour), string(revoked))
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("it stays connected")
			}
			if err := call(); status.Code(err) != codes.Unavailable {
				t.Errorf("it is let in again: %v", err)
			}
			await(t, "the log does not say why", func() bool { return strings.Contains(m.log.String(), "is revoked") })
			// with a new certificate it comes in
			replaced := m.node(revoked)
			if revoked == Router {
				nodes[Router] = replaced
			} else {
				addr = m.serve(replaced)
			}
			if err := owners(t, m.dial(addr, nodes[Router].DialOption(Store))); status.Code(err) != codes.Unimplemented {
				t.Errorf("with a new certificate: %v", err)
			}
		})
	}
}

// An edge refuses a router whose certificate is revoked at the door of its subscribers, and cuts
// nobody off there.
func TestARevokedRouterAtTheDoor(t *testing.T) {
	m := newMesh(t)
	m.revoke(time.Now().Add(time.Hour))
	router, edge := m.node(Router), m.listed(Edge)
	m.revoke(time.Now().Add(time.Hour), "router")
	await(t, "the list is not read", func() bool { n, _ := edge.Reloads(); return n > 0 })
	_, err := enter(t, edge.Door(nil, Router, "pm", func(cfg *tls.Config) *tls.Config { return cfg }), func(ctx context.Context, conn net.Conn) (net.Conn, error) {
		return router.Knock(ctx, conn, Edge, "pm")
	})
	if err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the door says %v", err)
	}
}

// The same from another implementation of TLS: what is wrong with a certificate ends the handshake.
func TestTiersWithOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl")
	}
	m := newMesh(t)
	for name, until := range map[string]time.Duration{"good": time.Hour, "expired": -time.Minute, "revoked": time.Hour} {
		cert, key, err := m.Issue(time.Now().Add(until), Router.Name())
		need(t, err)
		need(t, os.WriteFile(m.file(name+".pem"), cert, 0o600))
		need(t, os.WriteFile(m.file(name+".key"), key, 0o600))
	}
	m.revoke(time.Now().Add(time.Hour), "revoked")
	addr := m.serve(m.listed(Store))
	for name, c := range map[string]struct {
		cert, host, want string
	}{
		"good":       {"good", Store.Name(), "Verification: OK"},
		"expired":    {"expired", Store.Name(), "alert certificate expired"},
		"revoked":    {"revoked", Store.Name(), "alert bad certificate"},
		"wrong name": {"good", Edge.Name(), "ostname mismatch"},
	} {
		said := openssl(t, "-connect", addr, "-CAfile", m.file("ca.pem"), "-verify_return_error", "-alpn", "h2", "-servername", c.host,
			"-verify_hostname", c.host, "-cert", m.file(c.cert+".pem"), "-key", m.file(c.cert+".key"))
		if !bytes.Contains(said, []byte(c.want)) {
			t.Errorf("%s: openssl does not say %q:\n%s", name, c.want, said)
		}
		if c.want == "Verification: OK" && bytes.Contains(said, []byte("alert ")) {
			t.Errorf("%s: refused:\n%s", name, said)
		}
	}
}

// openssl is s_client, which says no HTTP/2, so that a server that lets it in ends the connection.
func openssl(t *testing.T, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "openssl", append([]string{"s_client", "-ign_eof"}, args...)...)
	cmd.Stdin = strings.NewReader(strings.Repeat("no preface of HTTP/2\n", 4))
	said, _ := cmd.CombinedOutput() // the exit code differs by version
	need(t, ctx.Err())
	return said
}
