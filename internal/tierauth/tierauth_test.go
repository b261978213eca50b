package tierauth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// A new call needs a row in the table: without one nobody may make it.
func TestEveryCallHasItsCallers(t *testing.T) {
	known := map[string]bool{}
	for _, m := range methods() {
		known[m] = true
		if len(callers[m]) == 0 {
			t.Errorf("%s has no row in callers: say which tiers may call it", m)
		}
	}
	if len(known) < 26 {
		t.Errorf("only %d calls were found", len(known))
	}
	for m := range callers {
		if !known[m] {
			t.Errorf("%s is in callers, and no call", m)
		}
	}
}

// methods are those of all services between tiers: of every .proto file of the package.
func methods() (all []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("pushmesh.internal.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, fmt.Sprintf("/%s/%s", s.FullName(), s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	return all
}

func TestSettingsSayBothWays(t *testing.T) {
	for want, f := range map[string]Flags{
		"--mesh-cert, --mesh-key and --mesh-ca; pushmesh ca makes them": {},
		"--plain-tiers":           {},
		"must be given together":  {MeshCert: "a", MeshKey: "b"},
		"must be given together ": {MeshCA: "a", PlainTiers: true},
		"--mesh-crl needs":        {MeshCRL: "a", PlainTiers: true},
	} {
		if err := f.CheckTiers(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, f := range []Flags{{PlainTiers: true}, {MeshCert: "a", MeshKey: "b", MeshCA: "c"}} {
		if err := f.CheckTiers(); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []NATSFlags{{NATSUser: "a"}, {NATSPasswordFile: "a"}, {NATSUser: "a", NATSPasswordFile: "b", NATSCreds: "c"}} {
		if f.CheckNATS() == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}

// buffer is a log that many goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// mesh is a CA with its files.
type mesh struct {
	*testca.Authority
	t   *testing.T
	dir string
	log buffer
	reg *prometheus.Registry
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	a, err := testca.New()
	need(t, err)
	m := &mesh{Authority: a, t: t, dir: t.TempDir(), reg: prometheus.NewRegistry()}
	need(t, os.WriteFile(m.file("ca.pem"), a.PEM(), 0o600))
	return m
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *mesh) file(name string) string { return filepath.Join(m.dir, name) }

// flags of a node with a certificate for these names.
func (m *mesh) flags(file string, names ...string) Flags {
	m.t.Helper()
	cert, key, err := m.Write(m.dir, file, names...)
	need(m.t, err)
	return Flags{MeshCert: cert, MeshKey: key, MeshCA: m.file("ca.pem")}
}

func (m *mesh) open(tier Tier, f Flags, reg prometheus.Registerer) (*Identity, error) {
	return Open(Config{Flags: f, Tier: tier, Log: slog.New(slog.NewTextHandler(&m.log, nil)), Registry: reg, Every: time.Millisecond})
}

// node is one of the tier.
func (m *mesh) node(tier Tier) *Identity {
	m.t.Helper()
	i, err := m.open(tier, m.flags(string(tier), tier.Name()), nil)
	need(m.t, err)
	return i
}

// serve is a store whose calls are not there: who may make one hears UNIMPLEMENTED.
func (m *mesh) serve(i *Identity) (addr string) {
	m.t.Helper()
	s, err := grpcserve.Listen(m.t.Context(), "127.0.0.1:0")
	need(m.t, err)
	s.Serve(grpcserve.Config{
		MinPing: time.Second, TLS: i.TLS(), Options: i.ServerOptions(),
		Register: func(r grpc.ServiceRegistrar) {
			meshv1.RegisterStoreServiceServer(r, meshv1.UnimplementedStoreServiceServer{})
		},
	})
	m.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Stop(ctx)
	})
	return s.Addr()
}

func (m *mesh) dial(addr string, o grpc.DialOption) *grpc.ClientConn {
	m.t.Helper()
	conn, err := grpc.NewClient(addr, o)
	need(m.t, err)
	m.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func owners(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	_, err := meshv1.NewStoreServiceClient(conn).Owners(t.Context(), &meshv1.OwnersRequest{})
	return err
}

func shows(cert tls.Certificate, m *mesh) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		ServerName: Store.Name(), RootCAs: m.Pool(), MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}))
}

// Who doesn't belong to the mesh is refused, told, logged and counted.
func TestWhoDoesNotBelongIsRefused(t *testing.T) {
	m, other := newMesh(t), newMesh(t)
	reg := prometheus.NewRegistry()
	i, err := m.open(Store, m.flags("store", Store.Name(), "store-1.example"), reg)
	need(t, err)
	addr := m.serve(i)
	certificate := func(m *mesh, until time.Time, names ...string) tls.Certificate {
		cert, key, err := m.Issue(until, names...)
		need(t, err)
		pair, err := tls.X509KeyPair(cert, key)
		need(t, err)
		return pair
	}
	tomorrow := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name    string
		dial    grpc.DialOption
		code    codes.Code
		result  string // of the handshakes' count
		log     string
		refused bool // by the table
	}{
		{"a router", shows(certificate(m, tomorrow, Router.Name()), m), codes.Unimplemented, "full", "", false},
		{"an edge", m.node(Edge).DialOption(Store), codes.Unimplemented, "full", "", false},
		{"another CA", shows(certificate(other, tomorrow, Router.Name()), m), codes.Unavailable, "failed", "unknown authority", false},
		{"expired", shows(certificate(m, time.Now().Add(-time.Minute), Router.Name()), m), codes.Unavailable, "failed", "expired", false},
		{"no certificate", shows(tls.Certificate{}, m), codes.Unavailable, "failed", "didn't provide a certificate", false},
		{"plain text", grpc.WithTransportCredentials(insecure.NewCredentials()), codes.Unavailable, "refused", "there must be TLS", false},
		{"NATS", shows(certificate(m, tomorrow, NATS.Name()), m), codes.PermissionDenied, "full", "tier=nats", true},
		{"no tier", shows(certificate(m, tomorrow, "billing"), m), codes.PermissionDenied, "full", "tier=none", true},
		{"two tiers", shows(certificate(m, tomorrow, Router.Name(), Edge.Name()), m), codes.PermissionDenied, "full", "tier=none", true},
		{"an unknown tier", shows(certificate(m, tomorrow, "king"+Domain), m), codes.PermissionDenied, "full", "tier=none", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i.loud.forget() // each says its own
			logged := len(m.log.String())
			before, forbidden := testutil.ToFloat64(i.handshakes.WithLabelValues(c.result)), counted(t, reg, "pushmesh_store_mesh_forbidden_total")
			err := owners(t, m.dial(addr, c.dial))
			if status.Code(err) != c.code {
				t.Errorf("got %v", err)
			}
			// a client may hear of it sooner than the server says so
			await(t, c.result+" handshakes are not counted", func() bool { return testutil.ToFloat64(i.handshakes.WithLabelValues(c.result)) > before })
			await(t, "the log does not say "+c.log, func() bool { return strings.Contains(m.log.String()[logged:], c.log) })
			if c.refused != (counted(t, reg, "pushmesh_store_mesh_forbidden_total") > forbidden) {
				t.Errorf("forbidden calls: %v before", forbidden)
			}
		})
	}
}

// await waits for what another goroutine does.
func await(t *testing.T, otherwise string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// forget has the next line of each kind be said.
func (l *loud) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.last)
}

// A log is no place to be flooded: of many alike refusals one a second is told, with their number.
func TestRefusalsAreToldOnceASecond(t *testing.T) {
	var log buffer
	now := time.Unix(1, 0)
	l := newLoud()
	l.now = func() time.Time { return now }
	out := slog.New(slog.NewTextHandler(&log, nil))
	for range 10 {
		l.tell(out, "a", "refused")
	}
	l.tell(out, "b", "refused")
	now = now.Add(loudEvery)
	l.tell(out, "a", "refused")
	if text := log.String(); strings.Count(text, "refused") != 3 || !strings.Contains(text, `"others before"=9`) {
		t.Error(text)
	}
}

func counted(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	all, err := reg.Gather()
	need(t, err)
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// A tier calls what its row says, over unary calls and streams.
func TestATierCallsWhatItMay(t *testing.T) {
	m := newMesh(t)
	addr := m.serve(m.node(Store))
	for _, tier := range []Tier{Router, Edge, Compute, Operator, Store, NATS} {
		conn := m.dial(addr, m.node(tier).DialOption(Store))
		for method, who := range callers {
			if !strings.HasPrefix(method, "/pushmesh.internal.v1.StoreService/") {
				continue
			}
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err == nil {
				_ = stream.SendMsg(&meshv1.OwnersRequest{}) // how it ends, RecvMsg tells
				err = stream.CloseSend()
			}
			if err == nil {
				err = stream.RecvMsg(&meshv1.OwnersResponse{})
			}
			if refused := status.Code(err) == codes.PermissionDenied; refused == slices.Contains(who, tier) {
				t.Errorf("%s, %s: %v", tier, method, err)
			}
		}
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("%s, health: %v", tier, err)
		}
	}
}

// Who calls a store hears nobody but a store of the mesh, whatever the address.
func TestAServerMustBeOfItsTier(t *testing.T) {
	m, other := newMesh(t), newMesh(t)
	from := m.node(Router)
	for name, i := range map[string]*Identity{"a router": from, "a store of another mesh": other.node(Store)} {
		logged := len(m.log.String())
		from.loud.forget()
		if err := owners(t, m.dial(m.serve(i), from.DialOption(Store))); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "x509") {
			t.Errorf("%s: %v", name, err)
		}
		if text := m.log.String()[logged:]; !strings.Contains(text, "a connection to another tier failed") || !strings.Contains(text, "tier=store") {
			t.Errorf("%s: the log says %s", name, text)
		}
	}
}

// With --plain-tiers beside a certificate both are served: that's how a mesh changes over.
func TestBothAreServedWhileAMeshChangesOver(t *testing.T) {
	m := newMesh(t)
	f := m.flags("store", Store.Name())
	f.PlainTiers = true
	i, err := m.open(Store, f, nil)
	need(t, err)
	addr := m.serve(i)
	for _, o := range []grpc.DialOption{(*Identity)(nil).DialOption(Store), m.node(Router).DialOption(Store)} {
		if err := owners(t, m.dial(addr, o)); status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	}
}

// A process does not start with a certificate that nobody would take.
func TestABadCertificateIsFoundAtTheStart(t *testing.T) {
	m, other := newMesh(t), newMesh(t)
	expired := m.flags("expired", Store.Name())
	cert, key, err := m.Issue(time.Now().Add(-time.Hour), Store.Name())
	need(t, err)
	need(t, os.WriteFile(expired.MeshCert, cert, 0o600))
	need(t, os.WriteFile(expired.MeshKey, key, 0o600))
	foreign := other.flags("foreign", Store.Name())
	foreign.MeshCA = m.file("ca.pem")
	noCA := m.flags("noca", Store.Name())
	noCA.MeshCA = noCA.MeshKey
	for want, f := range map[string]Flags{
		"pushmesh ca issue --tier store": m.flags("edge", Edge.Name()),
		"expired at":                     expired,
		"other tiers won't take it":      foreign,
		"no certificate in PEM":          noCA,
		"/nowhere":                       {MeshCert: "/nowhere", MeshKey: "/nowhere", MeshCA: m.file("ca.pem")},
	} {
		if _, err := m.open(Store, f, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--mesh-cert") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// reloaded waits until a keeper has looked at new files.
func reloaded(t *testing.T, i *Identity, change func()) (failed bool) {
	t.Helper()
	taken, bad := i.Reloads()
	change()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		if now, nowBad := i.Reloads(); now > taken || nowBad > bad {
			return nowBad > bad
		}
	}
	t.Fatal("the files are not read again")
	return false
}

// Certificates and CAs change while calls go on: what is connected stays, new connections use what
// is new, and a broken file changes nothing.
func TestCertificatesAndCAsChange(t *testing.T) {
	m, next := newMesh(t), newMesh(t)
	nodes := map[Tier]*Identity{}
	for _, tier := range []Tier{Store, Router} {
		nodes[tier] = m.node(tier)
		need(t, nodes[tier].Start(t.Context()))
		t.Cleanup(func() { need(t, nodes[tier].Stop(context.Background())) })
	}
	addr := m.serve(nodes[Store])
	old := m.dial(addr, nodes[Router].DialOption(Store))
	calls := func(step string) {
		t.Helper()
		for what, conn := range map[string]*grpc.ClientConn{"live": old, "new": m.dial(addr, nodes[Router].DialOption(Store))} {
			if err := owners(t, conn); status.Code(err) != codes.Unimplemented {
				t.Errorf("%s, %s connection: %v", step, what, err)
			}
		}
	}
	calls("before")
	replace := func(file string, content []byte) {
		need(t, place(m.file(file), content, 0o600))
	}
	for _, tier := range []Tier{Store, Router} {
		i := nodes[tier]
		if !reloaded(t, i, func() { replace(string(tier)+".pem", []byte("junk")) }) || i.Check() == nil {
			t.Errorf("%s: junk is taken, health: %v", tier, i.Check())
		}
		calls("broken file")
	}
	// Each change may be seen in two halves, the first of which can't be used.
	until := func(change func(), i *Identity, is func() bool) {
		t.Helper()
		change()
		for deadline := time.Now().Add(time.Minute); !is(); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the files are not read again: ", i.Check())
			}
		}
	}
	leaf := func(by *mesh, tier Tier) {
		cert, key, err := by.Issue(time.Now().Add(time.Hour), tier.Name())
		need(t, err)
		pair, err := tls.X509KeyPair(cert, key)
		need(t, err)
		until(func() {
			replace(string(tier)+".key", key)
			replace(string(tier)+".pem", cert)
		}, nodes[tier], func() bool { return bytes.Equal(nodes[tier].First().Certificate[0], pair.Certificate[0]) })
		need(t, nodes[tier].Check())
		calls("new leaf of the " + string(tier))
	}
	leaf(m, Store)
	leaf(m, Router)
	authorities := func(pem []byte) {
		want := x509.NewCertPool()
		want.AppendCertsFromPEM(pem)
		for _, i := range nodes {
			until(func() { replace("ca.pem", pem) }, i, func() bool { return want.Equal(i.CA()) })
		}
		calls("other CAs")
	}
	authorities(slices.Concat(m.PEM(), next.PEM()))
	leaf(next, Router)
	leaf(next, Store)
	authorities(next.PEM())
	if err := owners(t, m.dial(addr, shows(mustCertificate(t, m), next))); status.Code(err) != codes.Unavailable {
		t.Errorf("the old CA is still believed: %v", err)
	}
}

func mustCertificate(t *testing.T, m *mesh) tls.Certificate {
	t.Helper()
	c, err := m.Certificate(Router.Name())
	need(t, err)
	return c
}
