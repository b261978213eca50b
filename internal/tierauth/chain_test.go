package tierauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// through has a certificate signed by an intermediate of the CA: the file has both.
func (m *mesh) through(root *CA, t Tier) Flags {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	need(m.t, err)
	between, err := template("intermediate", 30)
	need(m.t, err)
	between.IsCA, between.BasicConstraintsValid, between.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, between, root.cert, &key.PublicKey, root.key)
	need(m.t, err)
	parsed, err := x509.ParseCertificate(der)
	need(m.t, err)
	name := "through-" + string(t)
	need(m.t, (&CA{parsed, key}).Issue(Wanted{Tier: t, ID: name, Days: 1}, m.dir, true))
	leaf, err := os.ReadFile(m.file(name + ".pem"))
	need(m.t, err)
	chain := slices.Concat(leaf, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	need(m.t, os.WriteFile(m.file(name+".pem"), chain, 0o600))
	return Flags{MeshCert: m.file(name + ".pem"), MeshKey: m.file(name + ".key"), MeshCA: m.file(CACert)}
}

// Other CAs sign by intermediates, which stand behind the certificate in its file: --mesh-ca has
// the root alone.
func TestACertificateOfAnIntermediate(t *testing.T) {
	m := newMesh(t)
	root, err := NewCA(m.dir, true)
	need(t, err)
	// as pushmesh ca makes it, but for CAs below it
	key := root.key
	of, err := template("root", 30)
	need(t, err)
	of.IsCA, of.BasicConstraintsValid, of.KeyUsage = true, true, x509.KeyUsageCertSign
	need(t, write(of, of, key, key, m.file(CACert), m.file(CAKey), true))
	root, err = OpenCA(m.dir)
	need(t, err)
	store, err := m.open(Store, m.through(root, Store), nil)
	need(t, err)
	edge, err := m.open(Edge, m.through(root, Edge), nil)
	need(t, err)
	if err := owners(t, m.dial(m.serve(store), edge.DialOption(Store))); status.Code(err) != codes.Unimplemented {
		t.Errorf("an edge gets %v", err)
	}
}

// Who answers with a certificate of several tiers is none of them, as who calls with one is.
func TestAServerOfSeveralTiers(t *testing.T) {
	m := newMesh(t)
	pair, err := m.Certificate(Store.Name(), Edge.Name())
	need(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}})
	need(t, err)
	s := grpc.NewServer()
	meshv1.RegisterStoreServiceServer(s, meshv1.UnimplementedStoreServiceServer{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		need(t, <-served)
	})
	if err := owners(t, m.dial(listener.Addr().String(), m.node(Edge).DialOption(Store))); status.Code(err) != codes.Unavailable {
		t.Errorf("an edge takes it for a store: %v", err)
	}
}
