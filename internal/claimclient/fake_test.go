package claimclient

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/leaks"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

const last = topic.Shards - 1

// store is a fake one behind a real socket. It owns a range of shards; what it answers is up to the
// test.
type store struct {
	meshv1.UnimplementedStoreServiceServer
	addr string
	srv  *grpc.Server

	mu      sync.Mutex
	ranges  []*meshv1.OwnersResponse_Range
	answer  func(*meshv1.ClaimOp) *meshv1.ClaimResult // nil, or of nil: not at all
	ops     []*meshv1.ClaimOp
	hellos  []*meshv1.StoreServiceClaimsRequest
	most    int           // ops in a message
	changed chan struct{} // closed with the next op or stream
	streams map[*serving]struct{}
	list    func(*meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error)
}

// serving is a stream that is open.
type serving struct {
	send   sync.Mutex
	stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]
	kill   context.CancelFunc
}

func newStore(t *testing.T) *store {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &store{addr: listener.Addr().String(), srv: grpc.NewServer(), changed: make(chan struct{}), streams: map[*serving]struct{}{}}
	s.own(0, last)
	meshv1.RegisterStoreServiceServer(s.srv, s)
	served := make(chan error, 1)
	go func() { served <- s.srv.Serve(listener) }()
	t.Cleanup(func() {
		s.srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// own makes the store own a range and say so; first > last: nothing.
func (s *store) own(first, last int, others ...*meshv1.OwnersResponse_Range) {
	s.set(func() {
		s.ranges = others
		if first <= last {
			s.ranges = append(s.ranges, shards(first, last, s.addr))
		}
	})
}

func shards(first, last int, addr string) *meshv1.OwnersResponse_Range {
	return &meshv1.OwnersResponse_Range{First: uint32(first), Last: uint32(last), Address: addr}
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// answers has every operation answered by f from now on.
func (s *store) answers(f func(*meshv1.ClaimOp) *meshv1.ClaimResult) {
	s.set(func() { s.answer = f })
}

// says has every operation answered with a state.
func (s *store) says(st *wirev1.ClaimState) {
	s.answers(func(m *meshv1.ClaimOp) *meshv1.ClaimResult { return ok(m, st) })
}

func (s *store) Owners(context.Context, *meshv1.OwnersRequest) (*meshv1.OwnersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return meshidtest.Owners(s.ranges), nil
}

func (s *store) ListClaims(_ context.Context, req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list(req)
}

func (s *store) Claims(stream grpc.BidiStreamingServer[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]) error {
	ctx, kill := context.WithCancel(stream.Context())
	defer kill()
	v := &serving{stream: stream, kill: kill}
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	s.set(func() {
		s.hellos = append(s.hellos, hello)
		s.streams[v] = struct{}{}
		s.signal()
	})
	defer s.set(func() {
		delete(s.streams, v)
		s.signal()
	})
	failed := make(chan error, 1)
	go func() { failed <- s.serve(v) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-failed:
		return err
	}
}

func (s *store) serve(v *serving) error {
	for {
		req, err := v.stream.Recv()
		if err != nil {
			return err
		}
		resp := &meshv1.StoreServiceClaimsResponse{}
		s.set(func() {
			s.most = max(s.most, len(req.GetOps()))
			for _, m := range req.GetOps() {
				s.ops = append(s.ops, m)
				if s.answer == nil {
					continue
				}
				if r := s.answer(m); r != nil {
					r.Ref = m.GetRef()
					resp.Results = append(resp.Results, r)
				}
			}
			s.signal()
		})
		if len(resp.GetResults()) > 0 {
			if err := v.write(resp); err != nil {
				return err
			}
		}
	}
}

func (v *serving) write(resp *meshv1.StoreServiceClaimsResponse) error {
	v.send.Lock()
	defer v.send.Unlock()
	return v.stream.Send(resp)
}

// signal: s.mu is held.
func (s *store) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// sends a response on the only stream that is open.
func (s *store) sends(t *testing.T, resp *meshv1.StoreServiceClaimsResponse) {
	t.Helper()
	s.wait(t, "one stream", func() bool { return len(s.streams) == 1 })
	s.mu.Lock()
	var v *serving
	for v = range s.streams {
	}
	s.mu.Unlock()
	if err := v.write(resp); err != nil {
		t.Error(err)
	}
}

func (s *store) pushes(t *testing.T, ps ...*meshv1.ClaimPush) {
	t.Helper()
	s.sends(t, &meshv1.StoreServiceClaimsResponse{Pushes: ps})
}

// breaks every stream.
func (s *store) breaks() {
	s.set(func() {
		for v := range s.streams {
			v.kill()
		}
	})
}

// wait until cond holds; s.mu is held for it.
func (s *store) wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		fits, changed := cond(), s.changed
		s.mu.Unlock()
		if fits {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// op waits for the nth operation that fits, from 1.
func (s *store) op(t *testing.T, n int, fits func(*meshv1.ClaimOp) bool) *meshv1.ClaimOp {
	t.Helper()
	var found *meshv1.ClaimOp
	s.wait(t, "an operation", func() bool {
		seen := 0
		for _, m := range s.ops {
			if fits(m) {
				if seen++; seen == n {
					found = m
					return true
				}
			}
		}
		return false
	})
	return found
}

func (s *store) count(fits func(*meshv1.ClaimOp) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.ops {
		if fits(m) {
			n++
		}
	}
	return n
}

func ok(m *meshv1.ClaimOp, st *wirev1.ClaimState) *meshv1.ClaimResult {
	return &meshv1.ClaimResult{Ref: m.GetRef(), State: st}
}

func of(k meshv1.ClaimOp_Kind) func(*meshv1.ClaimOp) bool {
	return func(m *meshv1.ClaimOp) bool { return m.GetKind() == k }
}
