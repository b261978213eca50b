package claims

import (
	"context"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// patience bounds every wait of these tests, and says only that something never came.
const patience = time.Minute

// world is a service behind a real gRPC server, with a store that answers what the test says.
type world struct {
	*Service
	store *store
	api   pushmeshv1.ClaimServiceClient
	reg   *prometheus.Registry
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	st := &store{changed: make(chan struct{})}
	server := grpc.NewServer()
	meshv1.RegisterStoreServiceServer(server, st)
	st.addr = serve(t, server)
	stores := storeclient.New(storeclient.Config{Seeds: []string{st.addr}})
	w := &world{store: st, reg: prometheus.NewRegistry()}
	cfg := Config{
		RouterID: "r1", Incarnation: 5, Stores: stores, Caller: func(context.Context) string { return "me" }, MaxPerCaller: 100, MaxWatches: 100, Registry: w.reg,
	}
	if change != nil {
		change(&cfg)
	}
	w.Service = New(cfg)
	for _, p := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{stores, w.Service} {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := p.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	front := grpc.NewServer(grpc.ForceServerCodecV2(codec.Codec{}))
	pushmeshv1.RegisterClaimServiceServer(front, w.Service)
	conn, err := grpc.NewClient(serve(t, front), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	w.api = pushmeshv1.NewClaimServiceClient(conn)
	for changed := stores.Changed(); ; changed = stores.Changed() {
		if _, _, err := stores.Owner(0); err == nil {
			return w
		}
		<-changed
	}
}

// serve serves until the test ends.
func serve(t *testing.T, server *grpc.Server) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// store is a fake one that owns everything.
type store struct {
	meshv1.UnimplementedStoreServiceServer
	addr string

	mu      sync.Mutex
	answer  func(*meshv1.ClaimOp) *meshv1.ClaimResult // nil: nothing is answered
	ops     []*meshv1.ClaimOp
	changed chan struct{}
	stream  grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]
	send    sync.Mutex
}

func (s *store) Owners(context.Context, *meshv1.OwnersRequest) (*meshv1.OwnersResponse, error) {
	return meshidtest.Owners([]*meshv1.OwnersResponse_Range{{Last: topic.Shards - 1, Address: s.addr}}), nil
}

func (s *store) Claims(stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error {
	s.mu.Lock()
	s.stream = stream
	s.mu.Unlock()
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		resp := &meshv1.StoreServiceClaimsResponse{}
		for _, m := range req.GetOps() {
			s.ops = append(s.ops, m)
			if s.answer != nil {
				r := s.answer(m)
				r.Ref = m.GetRef()
				resp.Results = append(resp.Results, r)
			}
		}
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if err := s.write(stream, resp); err != nil {
			return err
		}
	}
}

func (s *store) write(stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse], resp *meshv1.StoreServiceClaimsResponse) error {
	s.send.Lock()
	defer s.send.Unlock()
	return stream.Send(resp)
}

func (s *store) push(t *testing.T, p *meshv1.ClaimPush) {
	t.Helper()
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	if err := s.write(stream, &meshv1.StoreServiceClaimsResponse{Pushes: []*meshv1.ClaimPush{p}}); err != nil {
		t.Error(err)
	}
}

// says has every operation answered so.
func (s *store) says(st *wirev1.ClaimState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = func(*meshv1.ClaimOp) *meshv1.ClaimResult { return &meshv1.ClaimResult{State: st} }
}

// op waits for an operation of a kind.
func (s *store) op(t *testing.T, kind meshv1.ClaimOp_Kind) *meshv1.ClaimOp {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		changed := s.changed
		i := slices.IndexFunc(s.ops, func(m *meshv1.ClaimOp) bool { return m.GetKind() == kind })
		var m *meshv1.ClaimOp
		if i >= 0 {
			m = s.ops[i]
		}
		s.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no %v came", kind)
		}
	}
}
