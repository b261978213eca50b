// Package harness runs a whole mesh in the test's own process: every tier, an embedded NATS server
// and SQLite, on free ports, ended with the test; PUSHMESH_TEST_POLLER is its edges' --poller.
// Tests that kill processes use procmesh.
package harness

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/compute"
	"github.com/pushmesh/pushmesh/services/edge"
	"github.com/pushmesh/pushmesh/services/router"
	"github.com/pushmesh/pushmesh/services/store"
	"github.com/pushmesh/pushmesh/test/natsproxy"
)

// Options of a mesh; zero values: one of each tier, SQLite, no proxy.
type Options struct {
	Edges, Routers int
	// DB of the store; "": a SQLite file.
	DB string
	// Stores that share the DB, which is Postgres then.
	Stores int
	// NATS is the address of a server that other meshes use as well; "": one of its own.
	NATS string
	// Mesh is its name; "": the default.
	Mesh string
	// Proxy puts a fault proxy between all tiers and NATS.
	Proxy bool
	// TLSCert and TLSKey are files of the edges', which take clients with TLS too then; "": none.
	TLSCert, TLSKey string
	// AppendWait of the routers; 0: so long that they refuse nothing for a slow store.
	AppendWait time.Duration
}

// Mesh is a running mesh.
type Mesh struct {
	Proxy       *natsproxy.Proxy
	EdgeAddrs   []string
	RouterAddrs []string
	// RouterHTTP is where the first router has its health and metrics.
	RouterHTTP string
	// EdgeHTTP is the same of the first edge.
	EdgeHTTP string

	settings    store.Settings
	stopStore   func()
	compute     compute.Settings
	stopCompute func()
}

// Start starts a mesh and waits until every edge knows every router.
func Start(t testing.TB, o Options) *Mesh {
	t.Helper()
	m := &Mesh{}
	nats := o.NATS
	if nats == "" {
		nats = StartNATS(t)
	}
	if o.Proxy {
		m.Proxy = natsproxy.Start(t, nats)
		nats = m.Proxy.Addr()
	}
	url := "nats://" + nats
	if o.DB == "" {
		o.DB = "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	}
	const any = "127.0.0.1:0"
	ctx := t.Context()
	addr, err := ports.Addr() // it is started again on this one
	if err != nil {
		t.Fatal(err)
	}
	m.settings = store.Settings{ID: "store-1", Mesh: o.Mesh, Listen: addr, HTTP: any, NATS: url, DB: o.DB, LogLevel: "error"}
	m.startStore(t)
	t.Cleanup(func() { m.stopStore() }) // the one that runs then, after all that was started later
	storeAddrs := []string{m.settings.Listen}
	for i := 1; i < o.Stores; i++ {
		s := store.Settings{ID: fmt.Sprintf("store-%d", i+1), Listen: any, HTTP: any, NATS: url, DB: o.DB, LogLevel: "error"}
		st, err := store.New(ctx, s)
		start(t, s.ID, st, err)
		storeAddrs = append(storeAddrs, st.Addr())
	}
	computeAddr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	m.compute = compute.Settings{ID: "compute-1", Listen: computeAddr, HTTP: any, Stores: storeAddrs, LogLevel: "error"}
	m.StartCompute(t)
	t.Cleanup(func() { m.stopCompute() })
	for i := range max(1, o.Routers) {
		r, err := router.New(ctx, router.Settings{
			ID: fmt.Sprintf("router-%d", i+1), Listen: any, HTTP: any, NATS: url, Stores: storeAddrs, Computes: []string{computeAddr},
			ProducerRate: 1_000_000, ProducerInFlight: 10_000, AppendWait: cmp.Or(o.AppendWait, 10*time.Second), LogLevel: "error",
		})
		start(t, "router", r, err)
		m.RouterHTTP = cmp.Or(m.RouterHTTP, r.HTTPAddr())
		m.RouterAddrs = append(m.RouterAddrs, r.Addr())
	}
	for i := range max(1, o.Edges) {
		e, err := edge.New(ctx, edge.Settings{
			ID: fmt.Sprintf("edge-%d", i+1), Listen: any, HTTP: any, NATS: url, Stores: storeAddrs, Computes: []string{computeAddr}, LogLevel: "error",
			HandshakeTimeout: time.Minute, Poller: os.Getenv("PUSHMESH_TEST_POLLER"),
			TLSCerts: present(o.TLSCert), TLSKeys: present(o.TLSKey),
		})
		start(t, "edge", e, err)
		m.EdgeHTTP = cmp.Or(m.EdgeHTTP, e.HTTPAddr())
		m.EdgeAddrs = append(m.EdgeAddrs, e.Addr())
	}
	m.settle(t)
	return m
}

// StartCompute starts the compute node on its address.
func (m *Mesh) StartCompute(t testing.TB) {
	t.Helper()
	co, err := compute.New(t.Context(), m.compute)
	m.stopCompute = begin(t, "compute", co, err)
}

// RestartCompute stops the compute node, and starts another one on its address.
func (m *Mesh) RestartCompute(t testing.TB) {
	t.Helper()
	m.StopCompute()
	m.StartCompute(t)
}

// StopCompute stops the compute node until StartCompute.
func (m *Mesh) StopCompute() {
	m.stopCompute()
	m.stopCompute = func() {}
}

func (m *Mesh) startStore(t testing.TB) {
	t.Helper()
	st, err := store.New(t.Context(), m.settings)
	m.stopStore = begin(t, "store", st, err)
}

// RestartStore stops the store as planned, and starts another one on its address and database.
func (m *Mesh) RestartStore(t testing.TB) {
	t.Helper()
	m.stopStore()
	m.startStore(t)
}

// start starts a part that is stopped at the end of the test.
func start(t testing.TB, name string, p lifecycle.Part, err error) {
	t.Helper()
	t.Cleanup(begin(t, name, p, err))
}

// begin starts a part.
func begin(t testing.TB, name string, p lifecycle.Part, err error) (stop func()) {
	t.Helper()
	if err == nil {
		err = p.Start(t.Context())
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("stop %s: %v", name, err)
		}
	}
}

// StartNATS starts a server that ends with the test.
func StartNATS(t testing.TB) (addr string) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(patience) {
		t.Fatal("nats-server is not ready")
	}
	return srv.Addr().String()
}

// settle publishes through every router until the durable path works: the store owns its shards,
// and the routers know it.
func (m *Mesh) settle(t testing.TB) {
	t.Helper()
	for i := range m.RouterAddrs {
		api := pushmeshv1.NewPublishServiceClient(m.dial(t, m.RouterAddrs[i]))
		if _, err := api.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/harness"}); err != nil {
			t.Fatalf("the mesh did not settle: %v", err)
		}
	}
}

// EdgeAddr is the first edge's address.
func (m *Mesh) EdgeAddr() string { return m.EdgeAddrs[0] }

// RouterAddr is the first router's address.
func (m *Mesh) RouterAddr() string { return m.RouterAddrs[0] }

// Routers are connections to every router. What a unary call is refused for a moment it tries
// again.
func (m *Mesh) Routers(t testing.TB) (all []*grpc.ClientConn) {
	t.Helper()
	for _, addr := range m.RouterAddrs {
		all = append(all, m.dial(t, addr))
	}
	return all
}

// Router is a connection to the first router. What a unary call is refused for a moment it tries
// again.
func (m *Mesh) Router(t testing.TB) *grpc.ClientConn { return m.dial(t, m.RouterAddrs[0]) }

func (m *Mesh) dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(insist))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// keys that no two messages share.
var keys atomic.Uint64

// message has a key, so that it is stored once however often it is published.
func message(topic, payload string) *pushmeshv1.PublishRequest {
	return &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte(payload), DedupeKey: fmt.Sprint("harness-", keys.Add(1))}
}

// Publish publishes one message and waits for its answer.
func (m *Mesh) Publish(t testing.TB, topic, payload string) *pushmeshv1.PublishResponse {
	t.Helper()
	api, req := pushmeshv1.NewPublishServiceClient(m.Router(t)), message(topic, payload)
	res, err := api.Publish(t.Context(), req)
	if code.Of(err) == wirev1.Code_CODE_UNSUPPORTED { // an ephemeral topic, which has no keys
		req.DedupeKey = ""
		res, err = api.Publish(t.Context(), req)
	}
	if err != nil {
		t.Fatalf("publish to %s: %v", topic, err)
	}
	return res
}

// PublishBatch publishes "1" to "n" to topic in one request of a stream and waits for all answers;
// those that are to try again are published again, and no others: these are there already.
func (m *Mesh) PublishBatch(t testing.TB, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := pushmeshv1.NewPublishServiceClient(m.Router(t)).PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req := &pushmeshv1.PublishStreamRequest{}
	for i := 1; i <= n; i++ {
		req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: uint64(i), Message: message(topic, strconv.Itoa(i))})
	}
	for len(req.GetBatch()) > 0 {
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		refused := map[uint64]bool{}
		for answered := 0; answered < len(req.GetBatch()); {
			res, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range res.GetResults() {
				if answered++; again(r.GetCode()) {
					refused[r.GetRef()] = true
				} else if r.GetCode() != 0 {
					t.Fatalf("ref %d: %v %s", r.GetRef(), r.GetCode(), r.GetError())
				}
			}
		}
		req.Batch = slices.DeleteFunc(req.GetBatch(), func(it *pushmeshv1.PublishStreamRequest_Item) bool { return !refused[it.GetRef()] })
	}
}

// present is a list of what is not empty.
func present(file string) []string {
	if file == "" {
		return nil
	}
	return []string{file}
}
