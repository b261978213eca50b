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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/inprocess"
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
	// Key is shown to routers with every call; "": none is.
	Key string
	// Change is called with the settings of all nodes before they start; nil: they stay.
	Change func(*inprocess.Settings)
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

	mesh *inprocess.Mesh
	key  string
}

// bearer shows a key, or a token, with every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// Showing is an option of connections to routers that show a key, or a token.
func Showing(key string) grpc.DialOption { return grpc.WithPerRPCCredentials(bearer(key)) }

// Start starts a mesh and waits until every edge knows every router.
func Start(t testing.TB, o Options) *Mesh {
	t.Helper()
	m := &Mesh{key: o.Key}
	nats := o.NATS
	if nats == "" {
		nats = StartNATS(t)
	}
	if o.Proxy {
		m.Proxy = natsproxy.Start(t, nats)
		nats = m.Proxy.Addr()
	}
	set := settings(t, o)
	set.NATS = "nats://" + nats
	if o.Change != nil {
		o.Change(&set)
	}
	m.mesh = inprocess.New(set)
	if err := m.mesh.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, m.mesh) })
	m.RouterAddrs, m.RouterHTTP = inprocess.Addrs(m.mesh.Routers), m.mesh.Routers[0].Part.HTTPAddr()
	m.EdgeAddrs, m.EdgeHTTP = inprocess.Addrs(m.mesh.Edges), m.mesh.Edges[0].Part.HTTPAddr()
	m.settle(t)
	return m
}

// settings are what the options mean for each node. The first store and the compute node have
// addresses that they are started again on.
func settings(t testing.TB, o Options) (s inprocess.Settings) {
	t.Helper()
	const free, level = "127.0.0.1:0", "error"
	db := cmp.Or(o.DB, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))
	for i := range max(1, o.Stores) {
		s.Stores = append(s.Stores, store.Settings{ID: fmt.Sprintf("store-%d", i+1), Mesh: o.Mesh, Listen: free, HTTP: free, DB: db, LogLevel: level})
	}
	s.Stores[0].Listen = addr(t)
	s.Computes = []compute.Settings{{ID: "compute-1", Listen: addr(t), HTTP: free, LogLevel: level}}
	for i := range max(1, o.Routers) {
		s.Routers = append(s.Routers, router.Settings{
			Open: true, ID: fmt.Sprintf("router-%d", i+1), Listen: free, HTTP: free, LogLevel: level,
			ProducerRate: 1_000_000, ProducerInFlight: 10_000, AppendWait: cmp.Or(o.AppendWait, 10*time.Second),
		})
	}
	for i := range max(1, o.Edges) {
		s.Edges = append(s.Edges, edge.Settings{
			ID: fmt.Sprintf("edge-%d", i+1), Listen: free, HTTP: free, LogLevel: level,
			HandshakeTimeout: time.Minute, Poller: os.Getenv("PUSHMESH_TEST_POLLER"),
			Open:     true,
			TLSCerts: present(o.TLSCert), TLSKeys: present(o.TLSKey),
		})
	}
	return s
}

// addr that stays this process's.
func addr(t testing.TB) string {
	t.Helper()
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// StartCompute starts the compute node on its address.
func (m *Mesh) StartCompute(t testing.TB) { start(t, m.mesh.Computes[0]) }

// RestartCompute stops the compute node, and starts another one on its address.
func (m *Mesh) RestartCompute(t testing.TB) {
	t.Helper()
	m.StopCompute(t)
	m.StartCompute(t)
}

// StopCompute stops the compute node until StartCompute.
func (m *Mesh) StopCompute(t testing.TB) { stop(t, m.mesh.Computes[0]) }

// RestartStore stops the store as planned, and starts another one on its address and database.
func (m *Mesh) RestartStore(t testing.TB) {
	t.Helper()
	stop(t, m.mesh.Stores[0])
	start(t, m.mesh.Stores[0])
}

func start(t testing.TB, p lifecycle.Part) {
	t.Helper()
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func stop(t testing.TB, p lifecycle.Part) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// StartNATS starts a server that ends with the test.
func StartNATS(t testing.TB) (addr string) {
	t.Helper()
	srv := &inprocess.NATS{}
	start(t, srv)
	t.Cleanup(func() { stop(t, srv) })
	return strings.TrimPrefix(srv.URL(), "nats://")
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
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(insist)}
	if m.key != "" {
		options = append(options, Showing(m.key))
	}
	conn, err := grpc.NewClient(addr, options...)
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
