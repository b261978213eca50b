package gate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/decisions"
	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	pb "github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// patience is how long something may take that should be at once.
const patience = 20 * time.Second

// prepare is a service that others serve, and routers call.
const prepare = "pushmesh.v1.PrepareService"

// methods are all of the public API, by the names that needs has.
func methods() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("pushmesh.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for n := range s.Methods().Len() {
				if m := s.Methods().Get(n); s.FullName() != prepare {
					all[string(s.FullName())+"/"+string(m.Name())] = m
				}
			}
		}
		return true
	})
	return all
}

func TestEveryCallOfTheAPIHasItsNeed(t *testing.T) {
	all := methods()
	if len(all) < 30 {
		t.Fatalf("there are %d RPCs only", len(all))
	}
	for name, m := range all {
		if _, has := needs[name]; !has {
			t.Errorf("%s (%v) is not in needs: say which role it takes", name, m.FullName())
		}
	}
	for name := range needs {
		if all[name] == nil {
			t.Errorf("needs has %s, which the API has not", name)
		}
	}
}

// slow answers what has to last.
type slow struct {
	pb.UnimplementedClaimServiceServer
	began chan struct{}
}

func (s *slow) Acquire(ctx context.Context, _ *pb.AcquireRequest) (*pb.AcquireResponse, error) {
	s.began <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *slow) Watch(_ *pb.WatchRequest, to grpc.ServerStreamingServer[pb.WatchResponse]) error {
	if err := to.Send(&pb.WatchResponse{}); err != nil {
		return err
	}
	<-to.Context().Done()
	return to.Context().Err()
}

// served is a gate before services that answer nothing but UNIMPLEMENTED, if it lets a call in.
type served struct {
	keeper *backends.Keeper
	path   string
	keys   map[string]string
	claims *slow
	conn   *grpc.ClientConn
	log    lines
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serve(t *testing.T, roles map[string][]string) *served {
	t.Helper()
	return serveWith(t, roles, &noModels{})
}

// noModels takes what a model is called, and refuses it.
type noModels struct {
	pb.UnimplementedRankServiceServer
}

func (n *noModels) PutModel(s grpc.ClientStreamingServer[pb.PutModelRequest, pb.PutModelResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return n.UnimplementedRankServiceServer.PutModel(s)
}

func serveWith(t *testing.T, roles map[string][]string, rank pb.RankServiceServer) *served {
	t.Helper()
	s := &served{path: filepath.Join(t.TempDir(), "backends.yaml"), keys: map[string]string{}, claims: &slow{began: make(chan struct{}, 1)}}
	for name, r := range roles {
		_, text, err := backends.Create(s.path, name, r, time.Now(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		s.keys[name] = text
	}
	var err error
	if s.keeper, err = backends.Open(backends.Config{Path: s.path, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if err := s.keeper.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server, err := grpcserve.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	g := New(Config{Backends: s.keeper, Decisions: decisions.New("pushmesh_router_decisions_suppressed_total", 1, log, nil), Log: log})
	server.Serve(grpcserve.Config{Around: g.Around, Register: func(r grpc.ServiceRegistrar) {
		pb.RegisterPublishServiceServer(r, pb.UnimplementedPublishServiceServer{})
		pb.RegisterHistoryServiceServer(r, pb.UnimplementedHistoryServiceServer{})
		pb.RegisterSessionServiceServer(r, pb.UnimplementedSessionServiceServer{})
		pb.RegisterAccessServiceServer(r, pb.UnimplementedAccessServiceServer{})
		pb.RegisterMembershipServiceServer(r, pb.UnimplementedMembershipServiceServer{})
		pb.RegisterNamespaceServiceServer(r, pb.UnimplementedNamespaceServiceServer{})
		pb.RegisterPresenceServiceServer(r, pb.UnimplementedPresenceServiceServer{})
		pb.RegisterRankServiceServer(r, rank)
		pb.RegisterDeadLetterServiceServer(r, pb.UnimplementedDeadLetterServiceServer{})
		pb.RegisterKeptServiceServer(r, pb.UnimplementedKeptServiceServer{})
		pb.RegisterMeshServiceServer(r, pb.UnimplementedMeshServiceServer{})
		pb.RegisterSubscribeServiceServer(r, pb.UnimplementedSubscribeServiceServer{})
		pb.RegisterClaimServiceServer(r, s.claims)
	}})
	if s.conn, err = grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(server.Stop(ctx), s.keeper.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *served) as(t *testing.T, name string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.keys[name])
}

// call makes a call, of whatever kind, and returns what it ends with.
func (s *served) call(ctx context.Context, name string, m protoreflect.MethodDescriptor, req proto.Message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := func() proto.Message {
		t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if err != nil {
			panic(err)
		}
		return t.New().Interface()
	}
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return s.conn.Invoke(ctx, "/"+name, req, out())
	}
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: true}, "/"+name)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(req), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(out())
}

// about puts a topic into whatever of a request has one.
func about(t *testing.T, m protoreflect.MethodDescriptor, topic string) proto.Message {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	req := typ.New()
	for i := range m.Input().Fields().Len() {
		f := m.Input().Fields().Get(i)
		switch name := f.Name(); {
		case name != "topic" && name != "topics" && name != "resource" && (name != "filter" || m.Name() != "Watch" && m.Parent().Name() != "KeptService"):
		case f.IsList():
			l := req.Mutable(f).List()
			l.Append(protoreflect.ValueOfString("mine/1"))
			l.Append(protoreflect.ValueOfString(topic))
		default:
			req.Set(f, protoreflect.ValueOfString(topic))
		}
	}
	return req.Interface()
}

// TestRolesByCallsByTopics is every role with every call about a topic in its filter, one beside it
// and more than it. Topics of messages and filters of Subscribe are told apart by others.
func TestRolesByCallsByTopics(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string][]string{
		"publisher": {"publisher:mine/#"}, "consumer": {"consumer:mine/#"}, "claimant": {"claimant:mine/#"}, "auditor": {"auditor"}, "operator": {"operator"},
	})
	// who may always, and who where the topic is its own
	always := map[string]string{
		"Publish": "publisher", "PublishStream": "publisher", "CancelScheduled": "publisher", "Subscribe": "consumer",
		"HistoryService/Read": "auditor", "HistoryService/Head": "auditor", "PresenceService/Count": "auditor", "PresenceService/List": "auditor", "PresenceService/Watch": "auditor",
		"Check": "auditor", "ClaimService/Watch": "auditor", "ClaimService/List": "auditor", "DeadLetterService/List": "auditor", "KeptService/List": "auditor",
		"AccessService/List": "auditor", "MembershipService/List": "auditor", "ListTeams": "auditor", "SessionService/List": "auditor", "SessionService/Get": "auditor", "NamespaceService/Get": "auditor", "NamespaceService/List": "auditor",
		"RankService/Rank": "publisher consumer auditor", "ListModels": "auditor", "Nodes": "auditor",
	}
	own := map[string]string{
		"HistoryService/Read": "consumer", "HistoryService/Head": "consumer", "PresenceService/Count": "consumer", "PresenceService/List": "consumer", "PresenceService/Watch": "consumer",
		"Renew": "claimant", "Release": "claimant", "Leave": "claimant", "Check": "claimant", "ClaimService/Watch": "claimant", "ClaimService/List": "claimant", "KeptService/List": "consumer",
	}
	has := func(of map[string]string, name, role string) bool {
		service, method, _ := strings.Cut(strings.TrimPrefix(name, "pushmesh.v1."), "/")
		roles := of[service+"/"+method]
		if roles == "" {
			roles = of[method]
		}
		return strings.Contains(roles, role)
	}
	for name, m := range methods() {
		if name == "pushmesh.v1.ClaimService/Acquire" {
			continue // it waits: TestALostRoleEndsWhatLasts
		}
		for role := range s.keys {
			for topic, mine := range map[string]bool{"mine/1": true, "mine/+/x": true, "other/1": false, "#": false, "mine2": false, "a//b": false} {
				err := s.call(s.as(t, role), name, m, about(t, m, topic))
				want := role == "operator" || has(always, name, role) || mine && has(own, name, role)
				if refused := code.Of(err) == wirev1.Code_CODE_FORBIDDEN; refused == want {
					t.Errorf("%s calls %s about %s: %v", role, name, topic, err)
				} else if refused && !strings.Contains(err.Error(), "rule default-deny") {
					t.Errorf("%s calls %s about %s: the refusal names no rule: %v", role, name, topic, err)
				}
			}
		}
	}
	list := func(prefix string) error {
		_, err := pb.NewClaimServiceClient(s.conn).List(s.as(t, "claimant"), &pb.ClaimServiceListRequest{Prefix: prefix})
		return err
	}
	for prefix, ok := range map[string]bool{"mine/": true, "mine/a": true, "mine": false, "": false, "other/": false} {
		if err := list(prefix); (code.Of(err) == wirev1.Code_CODE_FORBIDDEN) == ok {
			t.Errorf("claims that begin with %q: %v", prefix, err)
		}
	}
}

func TestWhoShowsNothingOrWrong(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string][]string{"a": {"operator"}})
	good := s.keys["a"]
	for _, values := range [][]string{
		nil, {""}, {"Bearer "}, {good}, {"Basic " + good}, {"Bearer " + good, "Bearer " + good}, {"Bearer " + good[:len(good)-4] + "AAAA"}, {"Bearer pmk_x"}, {"Bearer a.b.c"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for _, v := range values {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", v)
		}
		for name, m := range methods() {
			err := s.call(ctx, name, m, about(t, m, "x"))
			if code.Of(err) != wirev1.Code_CODE_UNAUTHENTICATED {
				t.Errorf("%s with %d values: %v", name, len(values), err)
			} else if strings.Contains(err.Error(), good[20:]) {
				t.Errorf("the key is in the error: %v", err)
			}
		}
		if _, err := grpc_health_v1.NewHealthClient(s.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
	}
}

// change takes the key of a out of the file, or a part of its role.
func (s *served) change(t *testing.T, revoke bool) {
	t.Helper()
	if revoke {
		p, err := backends.ReadKey(s.keys["a"])
		if err != nil {
			t.Fatal(err)
		}
		if err := backends.Revoke(s.path, p.KeyID); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path, []byte(strings.Replace(string(data), "claimant:mine/#", "claimant:mine/1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestALostRoleEndsWhatLasts has a stream and a call that waits end when the file changes.
func TestALostRoleEndsWhatLasts(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]wirev1.Code{"revoked": wirev1.Code_CODE_UNAUTHENTICATED, "fewer roles": wirev1.Code_CODE_FORBIDDEN} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := serve(t, map[string][]string{"a": {"claimant:mine/#"}})
			api := pb.NewClaimServiceClient(s.conn)
			watch, err := api.Watch(s.as(t, "a"), &pb.WatchRequest{Resource: "mine/1"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := watch.Recv(); err != nil {
				t.Fatal(err)
			}
			waited := make(chan error, 1)
			ctx := s.as(t, "a")
			go func() {
				_, err := api.Acquire(ctx, &pb.AcquireRequest{Resource: "mine/1"})
				waited <- err
			}()
			select {
			case <-s.claims.began:
			case err := <-waited:
				t.Fatal(err)
			}
			began := time.Now()
			s.change(t, what == "revoked")
			if _, err := watch.Recv(); code.Of(err) != want {
				t.Errorf("the stream ended with %v", err)
			}
			if err := <-waited; code.Of(err) != want {
				t.Errorf("the call ended with %v", err)
			}
			t.Logf("they ended after %v", time.Since(began))
			if n := s.keeper.Stats(0).Held; n != 0 {
				t.Errorf("%d calls are held still", n)
			}
		})
	}
}

// TestACallThatEndsIsForgotten leaves nothing behind of streams and calls.
func TestACallThatEndsIsForgotten(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string][]string{"a": {"operator"}})
	for name, m := range methods() {
		if m.Name() == "Acquire" || name == "pushmesh.v1.ClaimService/Watch" {
			continue
		}
		if err := s.call(s.as(t, "a"), name, m, about(t, m, "x")); code.Of(err) == wirev1.Code_CODE_FORBIDDEN {
			t.Error(err)
		}
	}
	if n := s.keeper.Stats(0).Held; n != 0 {
		t.Errorf("%d calls are held", n)
	}
}
