package tierauth

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// enter connects to a server with cfg, and returns what the client made of that, once the server
// has taken it.
func enter(t *testing.T, cfg *tls.Config, client func(context.Context, net.Conn) (net.Conn, error)) (net.Conn, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	need(t, err)
	defer func() { _ = ln.Close() }()
	taken := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			defer func() { _ = conn.Close() }()
			err = tls.Server(conn, cfg).HandshakeContext(t.Context())
		}
		taken <- err
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	need(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	secure, err := client(ctx, conn)
	if err != nil {
		_ = conn.Close()
	}
	return secure, errors.Join(err, <-taken)
}

// One port shows clients its public certificate, and routers of the mesh, and nobody else, that of
// the edge.
func TestADoorForClientsAndATier(t *testing.T) {
	m, other := newMesh(t), newMesh(t)
	edge := m.node(Edge)
	cert, key, err := m.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	need(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	need(t, err)
	// #nosec G402 -- a test
	old := &tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	// #nosec G402 -- a test
	oldKnock := &tls.Config{ServerName: Edge.Name(), MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	public := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"x"}, MinVersion: tls.VersionTLS12}
	knock := func(i *Identity) func(context.Context, net.Conn) (net.Conn, error) {
		return func(ctx context.Context, conn net.Conn) (net.Conn, error) { return i.Knock(ctx, conn, Edge, "x") }
	}
	as := func(cfg *tls.Config) func(context.Context, net.Conn) (net.Conn, error) {
		cfg.RootCAs, cfg.NextProtos = m.Pool(), []string{"x"}
		return func(ctx context.Context, conn net.Conn) (net.Conn, error) {
			c := tls.Client(conn, cfg)
			return c, c.HandshakeContext(ctx)
		}
	}
	prepared := 0
	prepare := func(cfg *tls.Config) *tls.Config { prepared++; return cfg }
	for _, c := range []struct {
		name   string
		door   *tls.Config
		client func(context.Context, net.Conn) (net.Conn, error)
		says   string // "": it is let in
	}{
		{"a router", edge.Door(public, Router, "x", prepare), knock(m.node(Router)), ""},
		{"a client", edge.Door(public, Router, "x", prepare), as(old), ""},
		{"a router, where there are no clients with TLS", edge.Door(nil, Router, "x", prepare), knock(m.node(Router)), ""},
		{"a client there", edge.Door(nil, Router, "x", prepare), as(&tls.Config{ServerName: "127.0.0.1"}), "unrecognized name"},
		{"a store", edge.Door(public, Router, "x", prepare), knock(m.node(Store)), "not that of a router"},
		{"another mesh's router", edge.Door(public, Router, "x", prepare), knock(other.node(Router)), "certificate"},
		{"a client that asks for the tier", edge.Door(public, Router, "x", prepare), as(&tls.Config{ServerName: Edge.Name()}), "didn't provide a certificate"},
		{"with the public certificate", edge.Door(public, Router, "x", prepare), as(&tls.Config{ServerName: Edge.Name(), Certificates: []tls.Certificate{pair}}), "not that of a router"},
		{"an older version", edge.Door(public, Router, "x", prepare), as(oldKnock), "version"},
		{"an edge without an identity", (*Identity)(nil).Door(public, Router, "x", prepare), knock(m.node(Router)), "certificate is not valid for"},
		{"a store that answers for an edge", m.node(Store).Door(public, Router, "x", prepare), knock(m.node(Router)), "certificate is not valid for"},
	} {
		conn, err := enter(t, c.door, c.client)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if state, ok := conn.(*tls.Conn); c.says == "" && (!ok || state.ConnectionState().NegotiatedProtocol != "x") {
			t.Errorf("%s: no protocol was agreed on", c.name)
		}
	}
	if prepared != 7 {
		t.Errorf("%d settings were prepared", prepared)
	}
	if public.GetConfigForClient != nil {
		t.Error("the settings that were given are changed")
	}
	// whose certificate changes shows the new one at the next connection
	need(t, edge.Start(t.Context()))
	defer func() { need(t, edge.Stop(context.Background())) }()
	first := edge.First()
	m.flags("edge", Edge.Name())
	await(t, "the certificate is not read again", func() bool { return edge.First() != first })
	conn, err := enter(t, edge.Door(public, Router, "x", prepare), knock(m.node(Router)))
	need(t, err)
	if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber; got.Cmp(edge.First().Leaf.SerialNumber) != 0 {
		t.Error("the old certificate is shown")
	}
}
