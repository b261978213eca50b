// Package edgetest stands in for the tiers around an edge in tests: a store in memory behind real
// gRPC, an in-process NATS server that can be stopped and started, and a router that tests steer
// frame by frame.
package edgetest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Epoch of topics in a new store.
const Epoch = 1000

// Store owns every shard and keeps everything in memory.
type Store struct {
	meshv1.UnimplementedStoreServiceServer
	t    testing.TB
	addr string

	mu       sync.Mutex
	server   *grpc.Server
	epoch    uint64
	logs     map[string][]*meshv1.LogRecord
	sessions map[[2]string]*session
	calls    map[string]int

	namespaces []*pushmeshv1.Namespace
	claims     claims
}

type session struct {
	generation uint64
	edge       string
	conn       uint64
	cursors    map[string]*meshv1.SessionCursor
	filters    map[string]bool
	dead       []*meshv1.DeadLetter
	until      time.Time // of a lease
}

// NewStore starts a store; it ends with the test.
func NewStore(t testing.TB) *Store {
	addr, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{
		t: t, addr: addr, epoch: Epoch, logs: map[string][]*meshv1.LogRecord{},
		sessions: map[[2]string]*session{}, calls: map[string]int{},
	}
	s.Up()
	t.Cleanup(s.Down)
	return s
}

// Addr to reach it at, the same after Down and Up.
func (s *Store) Addr() string { return s.addr }

// Up makes it reachable.
func (s *Store) Up() {
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	server := grpc.NewServer()
	meshv1.RegisterStoreServiceServer(server, s)
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

// Down makes it unreachable; what it holds stays.
func (s *Store) Down() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	server.Stop()
}

// NewEpoch rewinds every log to nothing.
func (s *Store) NewEpoch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	clear(s.logs)
}

// Publish adds n messages to a topic's log and returns their deliveries.
func (s *Store) Publish(t string, n int) []*meshv1.Delivery {
	return s.publish(t, n, func(seq uint64) string { return fmt.Sprintf("%s %d", t, seq) })
}

// PublishPayload is Publish with a payload that all messages have.
func (s *Store) PublishPayload(t string, n int, payload string) []*meshv1.Delivery {
	return s.publish(t, n, func(uint64) string { return payload })
}

func (s *Store) publish(t string, n int, payload func(seq uint64) string) []*meshv1.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*meshv1.Delivery
	for range n {
		seq := uint64(len(s.logs[t])) + 1
		body, err := wire.Body(&wirev1.Message{Payload: []byte(payload(seq))})
		if err != nil {
			s.t.Fatal(err)
		}
		s.logs[t] = append(s.logs[t], &meshv1.LogRecord{Seq: seq, Body: body})
		out = append(out, &meshv1.Delivery{Topic: t, Epoch: s.epoch, Seq: seq, Body: body})
	}
	return out
}

// Calls of a method so far.
func (s *Store) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Cursor of a session, nil where there is none.
func (s *Store) Cursor(user, name, t string) *meshv1.SessionCursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sessions[[2]string{user, name}]; one != nil {
		return one.cursors[t]
	}
	return nil
}

// Holder of a session: the edge and the generation.
func (s *Store) Holder(user, name string) (edge string, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sessions[[2]string{user, name}]; one != nil {
		return one.edge, one.generation
	}
	return "", 0
}

func (s *Store) called(method string) func() {
	s.mu.Lock()
	s.calls[method]++
	return s.mu.Unlock
}

// Owners answers that this store owns everything.
func (s *Store) Owners(context.Context, *meshv1.OwnersRequest) (*meshv1.OwnersResponse, error) {
	return meshidtest.Owners([]*meshv1.OwnersResponse_Range{{Last: topic.Shards - 1, StoreId: "s", Address: s.addr}}), nil
}

func (s *Store) head(t string) *meshv1.Head {
	return &meshv1.Head{Topic: t, Epoch: s.epoch, Head: uint64(len(s.logs[t])), Oldest: 1}
}

// Heads of topics and of those that filters match.
func (s *Store) Heads(_ context.Context, req *meshv1.HeadsRequest) (*meshv1.HeadsResponse, error) {
	defer s.called("Heads")()
	resp := &meshv1.HeadsResponse{Shards: topic.ShardSetOf(func(int) bool { return true })}
	for _, t := range req.GetTopics() {
		resp.Heads = append(resp.Heads, s.head(t))
	}
	matched := uint32(0)
	for t := range s.logs {
		if slices.ContainsFunc(req.GetFilters(), func(f string) bool { return topic.Match(f, t) }) {
			resp.Heads = append(resp.Heads, s.head(t))
			matched++
		}
	}
	if req.GetLimit() > 0 && matched > req.GetLimit() {
		return nil, code.New(wirev1.Code_CODE_TOO_MANY_TOPICS, "too many")
	}
	return resp, nil
}

// ReadLog reads a range.
func (s *Store) ReadLog(req *meshv1.ReadLogRequest, stream meshv1.StoreService_ReadLogServer) error {
	resp, err := s.read(req)
	if err != nil {
		return err
	}
	return stream.Send(resp)
}

func (s *Store) read(req *meshv1.ReadLogRequest) (*meshv1.ReadLogResponse, error) {
	defer s.called("ReadLog")()
	if req.GetEpoch() != 0 && req.GetEpoch() != s.epoch {
		return nil, code.New(wirev1.Code_CODE_EPOCH_CHANGED, "gone")
	}
	log := s.logs[req.GetTopic()]
	resp := &meshv1.ReadLogResponse{Epoch: s.epoch, Head: uint64(len(log)), Oldest: 1}
	size := uint64(0)
	for _, rec := range log {
		if rec.GetSeq() < req.GetFromSeq() || req.GetToSeq() != 0 && rec.GetSeq() > req.GetToSeq() {
			continue
		}
		if size += uint64(len(rec.GetBody())); req.GetMaxBytes() > 0 && size > req.GetMaxBytes() && len(resp.GetRecords()) > 0 {
			break
		}
		resp.Records = append(resp.Records, rec)
	}
	return resp, nil
}

// AttachSession makes the caller the holder.
func (s *Store) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	defer s.called("AttachSession")()
	k := [2]string{req.GetUser(), req.GetName()}
	one := s.sessions[k]
	if req.GetPeek() {
		if one == nil {
			return &meshv1.AttachSessionResponse{}, nil
		}
		return &meshv1.AttachSessionResponse{Generation: one.generation, Resumed: true, PreviousEdge: one.edge, PreviousConnectionId: one.conn}, nil
	}
	if req.GetLeaseMs() > 0 && one != nil && one.edge != "" && one.edge != req.GetEdgeId() && time.Now().Before(one.until) {
		return &meshv1.AttachSessionResponse{PreviousEdge: one.edge}, nil
	}
	resp := &meshv1.AttachSessionResponse{Resumed: one != nil}
	if one == nil {
		one = &session{cursors: map[string]*meshv1.SessionCursor{}, filters: map[string]bool{}}
		s.sessions[k] = one
	}
	one.generation++
	one.until = time.Now().Add(time.Duration(req.GetLeaseMs()) * time.Millisecond)
	resp.Generation, resp.PreviousEdge, resp.PreviousConnectionId = one.generation, one.edge, one.conn
	for _, c := range one.cursors {
		resp.Cursors = append(resp.Cursors, c)
	}
	for f := range one.filters {
		resp.Filters = append(resp.Filters, f)
	}
	one.edge, one.conn = req.GetEdgeId(), req.GetConnectionId()
	return resp, nil
}

// RenewLeases renews every lease that no newer generation took.
func (s *Store) RenewLeases(_ context.Context, req *meshv1.RenewLeasesRequest) (*meshv1.RenewLeasesResponse, error) {
	defer s.called("RenewLeases")()
	resp := &meshv1.RenewLeasesResponse{}
	for _, l := range req.GetLeases() {
		one := s.sessions[[2]string{l.GetUser(), l.GetName()}]
		c := wirev1.Code_CODE_OK
		if one == nil || one.generation != l.GetGeneration() || one.edge != req.GetEdgeId() {
			c = wirev1.Code_CODE_SESSION_TAKEN_OVER
		} else {
			one.until = time.Now().Add(time.Duration(req.GetLeaseMs()) * time.Millisecond)
		}
		resp.Codes = append(resp.Codes, c)
	}
	return resp, nil
}

// WriteCursors writes those whose generation is not stale.
func (s *Store) WriteCursors(_ context.Context, req *meshv1.WriteCursorsRequest) (*meshv1.WriteCursorsResponse, error) {
	defer s.called("WriteCursors")()
	resp := &meshv1.WriteCursorsResponse{}
	for _, w := range req.GetWrites() {
		resp.Codes = append(resp.Codes, s.write(w))
	}
	return resp, nil
}

func (s *Store) write(w *meshv1.SessionWrite) wirev1.Code {
	one := s.sessions[[2]string{w.GetUser(), w.GetName()}]
	switch {
	case one == nil:
		return wirev1.Code_CODE_NOT_FOUND
	case one.generation != w.GetGeneration():
		return wirev1.Code_CODE_SESSION_TAKEN_OVER
	}
	for _, c := range w.GetCursors() {
		one.cursors[c.GetTopic()] = c
	}
	for _, t := range w.GetRemoveTopics() {
		delete(one.cursors, t)
	}
	for _, f := range w.GetAddFilters() {
		one.filters[f] = true
	}
	for _, f := range w.GetRemoveFilters() {
		delete(one.filters, f)
	}
	one.dead = append(one.dead, w.GetDeadLetters()...)
	if w.GetDetach() {
		one.edge, one.conn = "", 0
	}
	return wirev1.Code_CODE_OK
}

// ListNamespaces has the built-in ones, and those of ClientClaims.
func (s *Store) ListNamespaces(context.Context, *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &meshv1.ListNamespacesResponse{Version: 1, Namespaces: s.namespaces}, nil
}

// Patience of WaitFor, and of whatever else says only that something never came: far beyond what a
// busy machine brings about.
const Patience = time.Minute

// WaitFor polls until f returns nil, and fails the test with its last error.
func WaitFor(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-pace.C
	}
}
