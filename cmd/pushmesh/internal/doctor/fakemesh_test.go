package doctor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// fakeMesh is two routers, two edges and a store that say and do what a test wants.
type fakeMesh struct {
	t       *testing.T
	routers []string // addresses
	nodes   []*pushmeshv1.Node
	edges   []*fakeEdge

	mu     sync.Mutex
	hides  map[string]string // a node that a router does not know
	loses  func(router, edge string) bool
	refuse error // of publishing
}

func startFake(t *testing.T) *fakeMesh {
	t.Helper()
	m := &fakeMesh{t: t, hides: map[string]string{}, loses: func(string, string) bool { return false }}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			_, _ = w.Write([]byte("serving: ok\nready\n"))
			return
		}
		_, _ = w.Write([]byte("process_max_fds 1000\nprocess_open_fds 10\n"))
	}))
	t.Cleanup(web.Close)
	add := func(n *pushmeshv1.Node) {
		n.HttpAddress, n.Version = web.Listener.Addr().String(), "v1"
		n.Clock = uint64(time.Now().UnixMicro())
		n.HeardAt = n.Clock
		m.nodes = append(m.nodes, n)
	}
	for _, id := range []string{"e1", "e2"} {
		e := startFakeEdge(t, id)
		m.edges = append(m.edges, e)
		add(&pushmeshv1.Node{Tier: pushmeshv1.Tier_TIER_EDGE, Id: id, SubscriberAddress: e.addr})
	}
	for _, id := range []string{"r1", "r2"} {
		addr := serve(t, func(s *grpc.Server) {
			pushmeshv1.RegisterMeshServiceServer(s, &fakeRouter{m: m, id: id})
			pushmeshv1.RegisterPublishServiceServer(s, &fakeRouter{m: m, id: id})
		})
		m.routers = append(m.routers, addr)
		add(&pushmeshv1.Node{Tier: pushmeshv1.Tier_TIER_ROUTER, Id: id, GrpcAddress: addr})
	}
	add(&pushmeshv1.Node{Tier: pushmeshv1.Tier_TIER_STORE, Id: "s1", GrpcAddress: serve(t, func(s *grpc.Server) {
		meshv1.RegisterStoreServiceServer(s, fakeStore{})
	})})
	return m
}

func serve(t *testing.T, register func(*grpc.Server)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

type fakeStore struct {
	meshv1.UnimplementedStoreServiceServer
}

func (fakeStore) Inspect(context.Context, *meshv1.InspectRequest) (*meshv1.InspectResponse, error) {
	return &meshv1.InspectResponse{Databases: []*meshv1.InspectedDatabase{good()}}, nil
}

type fakeRouter struct {
	pushmeshv1.UnimplementedMeshServiceServer
	pushmeshv1.UnimplementedPublishServiceServer
	m  *fakeMesh
	id string
}

func (r *fakeRouter) Nodes(context.Context, *pushmeshv1.MeshServiceNodesRequest) (*pushmeshv1.MeshServiceNodesResponse, error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	resp := &pushmeshv1.MeshServiceNodesResponse{RouterId: r.id}
	for _, n := range r.m.nodes {
		if n.GetId() != r.m.hides[r.id] {
			resp.Nodes = append(resp.Nodes, n)
		}
	}
	return resp, nil
}

func (r *fakeRouter) Publish(_ context.Context, req *pushmeshv1.PublishRequest) (*pushmeshv1.PublishResponse, error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.m.refuse != nil {
		return nil, r.m.refuse
	}
	for _, e := range r.m.edges {
		if !r.m.loses(r.id, e.id) {
			e.deliver(&wirev1.Message{Topic: req.GetTopic(), Payload: req.GetPayload()})
		}
	}
	return &pushmeshv1.PublishResponse{}, nil
}

// fakeEdge takes every Hello and every Subscribe, unless it is mute or full, and delivers
// everything to everybody.
type fakeEdge struct {
	id, addr string

	mu      sync.Mutex
	mute    bool
	full    bool
	wants   string // the token of clients; "": none
	refuses string // topics that begin with it; "": none
	conns   map[net.Conn]bool
}

func startFakeEdge(t *testing.T, id string) *fakeEdge {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEdge{id: id, addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		e.mu.Lock()
		for c := range e.conns {
			_ = c.Close()
		}
		e.mu.Unlock()
		all.Wait()
	})
	return e
}

func (e *fakeEdge) serve(c net.Conn) {
	e.mu.Lock()
	e.conns[c] = false
	e.mu.Unlock()
	defer func() {
		_ = c.Close()
		e.mu.Lock()
		delete(e.conns, c)
		e.mu.Unlock()
	}()
	for {
		ft, body, err := wire.Read(c, nil, wire.MaxBody)
		if err != nil {
			return
		}
		e.mu.Lock()
		switch {
		case e.mute:
		case ft == wirev1.FrameType_FRAME_TYPE_HELLO && !e.believes(body):
			write(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_UNAUTHENTICATED, Message: "not that token"})
		case ft == wirev1.FrameType_FRAME_TYPE_HELLO && e.full:
			write(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_TOO_MANY_CONNECTIONS, Message: "the edge is at its limit of connections"})
		case ft == wirev1.FrameType_FRAME_TYPE_HELLO:
			write(c, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Edge: e.id})
		case ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
			s := &wirev1.Subscribe{}
			_ = proto.Unmarshal(body, s)
			if e.refuses != "" && strings.HasPrefix(s.GetFilter(), e.refuses) {
				write(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: "no store"})
				break
			}
			e.conns[c] = true
			write(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: s.GetId()})
		}
		e.mu.Unlock()
	}
}

func (e *fakeEdge) believes(hello []byte) bool {
	m := &wirev1.Hello{}
	return proto.Unmarshal(hello, m) == nil && m.GetToken() == e.wants
}

func (e *fakeEdge) deliver(m *wirev1.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c, subscribed := range e.conns {
		if subscribed {
			write(c, wirev1.FrameType_FRAME_TYPE_MESSAGE, m)
		}
	}
}

func write(c net.Conn, t wirev1.FrameType, m proto.Message) {
	if b, err := wire.Append(nil, t, m); err == nil {
		_, _ = c.Write(b)
	}
}
