package storeclient

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// fake is one store behind a real socket. It owns shards [first, last] in truth, and tells of
// ranges.
type fake struct {
	meshv1.UnimplementedStoreServiceServer
	addr string
	srv  *grpc.Server

	mu     sync.Mutex
	owns   func(shard int) bool
	ranges []*meshv1.OwnersResponse_Range
	asked  int // calls of Owners
	calls  int // all the others
	hang   bool
	mesh   meshid.Mesh // zero: the tests'
	broken error       // what every other call fails with
	// not nil: every other call waits for its end, and says here that it does
	stuck    chan struct{}
	mid      error          // what a read fails with after its first response
	more     []*meshv1.Head // that every filter matches too
	sessions []*pushmeshv1.Session
	dead     []*meshv1.DeadLetter
}

func newFake(t *testing.T) *fake { return newFakeAt(t, "127.0.0.1:0") }

func newFakeAt(t *testing.T, addr string) *fake {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: listener.Addr().String(), srv: grpc.NewServer(), owns: func(int) bool { return false }}
	meshv1.RegisterStoreServiceServer(f.srv, f)
	served := make(chan error, 1)
	go func() { served <- f.srv.Serve(listener) }()
	t.Cleanup(func() {
		f.srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

// own makes the fake own a range and say so; others in addition to that are hearsay.
func (f *fake) own(first, last int, others ...*meshv1.OwnersResponse_Range) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owns = func(s int) bool { return s >= first && s <= last }
	f.ranges = append([]*meshv1.OwnersResponse_Range{shards(first, last, f.addr)}, others...)
	return f
}

func shards(first, last int, addr string) *meshv1.OwnersResponse_Range {
	return &meshv1.OwnersResponse_Range{First: uint32(first), Last: uint32(last), Address: addr}
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) count(what func(*fake) int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return what(f)
}

func (f *fake) Owners(ctx context.Context, _ *meshv1.OwnersRequest) (*meshv1.OwnersResponse, error) {
	f.mu.Lock()
	f.asked++
	hang, ranges := f.hang, f.ranges
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	resp := meshidtest.Owners(ranges)
	if f.mesh != (meshid.Mesh{}) {
		resp.MeshName, resp.MeshId = f.mesh.Name, f.mesh.ID
	}
	return resp, nil
}

// enter counts a call and refuses what is another's.
func (f *fake) enter(ctx context.Context, shard int) error {
	f.mu.Lock()
	stuck := f.stuck
	f.mu.Unlock()
	if stuck != nil {
		select {
		case stuck <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	switch {
	case f.broken != nil:
		return f.broken
	case shard >= 0 && !f.owns(shard):
		return code.New(wirev1.Code_CODE_CONFLICT, "another store owns the shard")
	}
	return nil
}

func (f *fake) ReadLog(req *meshv1.ReadLogRequest, stream grpc.ServerStreamingServer[meshv1.ReadLogResponse]) error {
	if err := f.enter(stream.Context(), topic.Shard(req.GetTopic())); err != nil {
		return err
	}
	for seq := req.GetFromSeq(); seq <= req.GetToSeq(); seq++ {
		if err := stream.Send(&meshv1.ReadLogResponse{Records: []*meshv1.LogRecord{{Seq: seq}}}); err != nil {
			return err
		}
		f.mu.Lock()
		err := f.mid
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) Heads(ctx context.Context, req *meshv1.HeadsRequest) (*meshv1.HeadsResponse, error) {
	resp := &meshv1.HeadsResponse{}
	for _, t := range req.GetTopics() {
		if err := f.enter(ctx, topic.Shard(t)); err != nil {
			return nil, err
		}
		resp.Heads = append(resp.Heads, &meshv1.Head{Topic: t, Head: 7})
	}
	for _, filter := range req.GetFilters() { // one match at each store
		resp.Heads = append(resp.Heads, &meshv1.Head{Topic: strings.Replace(filter, "#", f.addr, 1), Head: 1})
	}
	if len(req.GetFilters()) > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		resp.Shards = topic.ShardSetOf(f.owns)
		resp.Heads = append(resp.Heads, f.more...)
	}
	return resp, nil
}

// ListKept has one topic at each store.
func (f *fake) ListKept(ctx context.Context, _ *meshv1.StoreServiceListKeptRequest) (*meshv1.StoreServiceListKeptResponse, error) {
	if err := f.enter(ctx, -1); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &meshv1.StoreServiceListKeptResponse{Topics: []*meshv1.Head{{Topic: "all/" + f.addr, Head: 1, Kept: 1}}, Shards: topic.ShardSetOf(f.owns)}, nil
}

func (f *fake) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	return &meshv1.AttachSessionResponse{Generation: 1}, f.enter(ctx, topic.SessionShard(req.GetUser(), req.GetName()))
}

func (f *fake) WriteCursors(ctx context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	resp := &meshv1.WriteCursorsResponse{}
	for _, w := range req.GetWrites() {
		if err := f.enter(ctx, topic.SessionShard(w.GetUser(), w.GetName())); err != nil {
			return nil, err
		}
		k := wirev1.Code_CODE_OK
		if w.GetGeneration() == 0 {
			k = wirev1.Code_CODE_SESSION_TAKEN_OVER
		}
		resp.Codes = append(resp.Codes, k)
	}
	return resp, nil
}

func (f *fake) ListSessions(_ context.Context, req *meshv1.ListSessionsRequest) (*meshv1.ListSessionsResponse, error) {
	user, name, err := ParsePageToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &meshv1.ListSessionsResponse{}
	for _, s := range f.sessions {
		if s.GetUser()+"\x00"+s.GetName() <= user+"\x00"+name {
			continue
		}
		if len(resp.GetSessions()) == int(req.GetLimit()) {
			last := resp.GetSessions()[len(resp.GetSessions())-1]
			resp.NextPageToken = PageToken(last.GetUser(), last.GetName())
			break
		}
		resp.Sessions = append(resp.Sessions, s)
	}
	return resp, nil
}

func (f *fake) ListNamespaces(ctx context.Context, _ *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	return &meshv1.ListNamespacesResponse{Version: 5}, f.enter(ctx, -1)
}

func (f *fake) ListDeadLetters(context.Context, *meshv1.ListDeadLettersRequest) (*meshv1.ListDeadLettersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &meshv1.ListDeadLettersResponse{DeadLetters: f.dead}, nil
}

func (f *fake) DiscardDeadLetters(_ context.Context, req *meshv1.DiscardDeadLettersRequest) (*meshv1.DiscardDeadLettersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.dead)
	f.dead = nil
	return &meshv1.DiscardDeadLettersResponse{Discarded: uint32(n)}, nil
}

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

// patient is for stores that all answer, if late: a busy machine shall not make one of them a
// silent one.
var patient = waits{ask: patience, grace: patience, silent: patience}

// client that knows seeds, started.
func client(t *testing.T, seeds ...string) *Client {
	t.Helper()
	return clientThatWaits(t, patient, seeds...)
}

func clientThatWaits(t *testing.T, w waits, seeds ...string) *Client {
	t.Helper()
	c := New(Config{Seeds: seeds})
	c.waits = w
	begin(t, c)
	return c
}

// begin starts a client, which ends with the test.
func begin(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// wait until cond holds: of the owner map, or of who has answered lately.
func wait(t *testing.T, c *Client, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		changed := c.Changed()
		if cond() {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func ownedBy(c *Client, shard int, addr string) func() bool {
	return func() bool {
		got, _, err := c.Owner(shard)
		return err == nil && got == addr
	}
}
