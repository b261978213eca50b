package router

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/ports"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const fakeEpoch = 42

// fakeLog is a log in memory that several fake stores can share, so that a shard can change its
// owner.
type fakeLog struct {
	mu         sync.Mutex
	records    map[string][]*meshv1.LogRecord
	byKey      map[string]*meshv1.AppendResult // topic and dedupe key, or producer and seq
	namespaces []*pushmeshv1.Namespace
	version    uint64
	models     []*pushmeshv1.Model
	sessions   map[string]*pushmeshv1.Session
	cursors    []*meshv1.SessionCursor
}

func newFakeLog() *fakeLog {
	return &fakeLog{records: map[string][]*meshv1.LogRecord{}, byKey: map[string]*meshv1.AppendResult{}, version: 1, sessions: map[string]*pushmeshv1.Session{}}
}

func (l *fakeLog) append(it *meshv1.AppendItem) *meshv1.AppendResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := ""
	if it.GetDedupeKey() != "" {
		key = it.GetTopic() + "\x00" + it.GetDedupeKey()
	}
	if first := l.byKey[key]; first != nil && key != "" {
		return &meshv1.AppendResult{
			Ref: it.GetRef(), Epoch: first.GetEpoch(), Seq: first.GetSeq(), MessageId: first.GetMessageId(), Duplicate: true,
		}
	}
	seq := uint64(len(l.records[it.GetTopic()]) + 1)
	l.records[it.GetTopic()] = append(l.records[it.GetTopic()],
		&meshv1.LogRecord{Seq: seq, ExpiresAt: it.GetExpiresAt(), Body: slices.Clone(it.GetBody())})
	res := &meshv1.AppendResult{Ref: it.GetRef(), Epoch: fakeEpoch, Seq: seq, MessageId: slices.Clone(it.GetMessageId())}
	if key != "" {
		l.byKey[key] = res
	}
	return res
}

func (l *fakeLog) topic(name string) []*meshv1.LogRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records[name])
}

// fakeStore is a store over real gRPC.
type fakeStore struct {
	meshv1.UnimplementedStoreServiceServer
	log  *fakeLog
	addr string

	mu   sync.Mutex
	srv  *grpc.Server
	owns func(shard int) bool
	map_ []*meshv1.OwnersResponse_Range // what it says of owners; nil: itself
	// items that are appended and then the stream breaks before an answer
	swallow int
	// items with which the stream breaks before they are appended
	drop     int
	streams  int
	refusing wirev1.Code
	saw      func(it *meshv1.AppendItem) // each that comes; nil: nobody looks
	gate     chan struct{}               // non-nil: appends wait for it
}

func startStore(tb testing.TB, log *fakeLog) *fakeStore {
	tb.Helper()
	s := &fakeStore{log: log, owns: func(int) bool { return true }}
	addr, err := ports.Addr()
	if err != nil {
		tb.Fatal(err)
	}
	s.listen(tb, addr)
	return s
}

func (s *fakeStore) listen(tb testing.TB, addr string) {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	srv := grpc.NewServer(grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20))
	meshv1.RegisterStoreServiceServer(srv, s)
	s.mu.Lock()
	s.addr, s.srv = l.Addr().String(), srv
	s.mu.Unlock()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	tb.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
}

// kill ends the server: connections break.
func (s *fakeStore) kill() {
	s.mu.Lock()
	srv := s.srv
	s.mu.Unlock()
	srv.Stop()
}

func (s *fakeStore) set(f func(*fakeStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *fakeStore) streamsSeen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

func all(addr string) []*meshv1.OwnersResponse_Range {
	return []*meshv1.OwnersResponse_Range{{First: 0, Last: topic.Shards - 1, StoreId: "s", Address: addr}}
}

func (s *fakeStore) Owners(context.Context, *meshv1.OwnersRequest) (*meshv1.OwnersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.map_ != nil {
		return meshidtest.Owners(s.map_), nil
	}
	return meshidtest.Owners(all(s.addr)), nil
}

func (s *fakeStore) Append(stream grpc.BidiStreamingServer[meshv1.AppendRequest, meshv1.AppendResponse]) error {
	s.set(func(s *fakeStore) { s.streams++ })
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		gate := s.gate
		s.mu.Unlock()
		if err := hold(stream, gate); err != nil {
			return err
		}
		resp := &meshv1.AppendResponse{}
		for _, it := range req.GetItems() {
			res, err := s.take(it)
			if err != nil {
				return err
			}
			resp.Results = append(resp.Results, res)
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// hold waits for the gate. An answer to nothing now and then says that the store lives: a router
// gives up one that says nothing for 5 s.
func hold(stream grpc.BidiStreamingServer[meshv1.AppendRequest, meshv1.AppendResponse], gate <-chan struct{}) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for gate != nil {
		select {
		case <-gate:
			return nil
		case <-tick.C:
			if err := stream.Send(&meshv1.AppendResponse{}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	return nil
}

func (s *fakeStore) take(it *meshv1.AppendItem) (*meshv1.AppendResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saw != nil {
		s.saw(it)
	}
	switch {
	case s.drop > 0:
		s.drop--
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "dropped")
	case !s.owns(topic.Shard(it.GetTopic())):
		return &meshv1.AppendResult{Ref: it.GetRef(), Code: wirev1.Code_CODE_CONFLICT, Error: "not the owner"}, nil
	case s.refusing != wirev1.Code_CODE_OK:
		return &meshv1.AppendResult{Ref: it.GetRef(), Code: s.refusing, Error: "refused", RetryAfterMs: 70}, nil
	}
	res := s.log.append(it)
	if s.swallow > 0 {
		s.swallow--
		return nil, code.New(wirev1.Code_CODE_UNAVAILABLE, "swallowed")
	}
	return res, nil
}

func (s *fakeStore) ReadLog(req *meshv1.ReadLogRequest, stream grpc.ServerStreamingServer[meshv1.ReadLogResponse]) error {
	if req.GetEpoch() != 0 && req.GetEpoch() != fakeEpoch {
		return code.New(wirev1.Code_CODE_EPOCH_CHANGED, "another epoch")
	}
	log := s.log.topic(req.GetTopic())
	resp := &meshv1.ReadLogResponse{Epoch: fakeEpoch, Head: uint64(len(log)), Oldest: 1}
	for _, r := range log {
		if r.GetSeq() < req.GetFromSeq() {
			continue
		}
		resp.Records = append(resp.Records, r)
		if err := stream.Send(resp); err != nil {
			return err
		}
		resp = &meshv1.ReadLogResponse{}
	}
	return nil
}

func (s *fakeStore) Heads(_ context.Context, req *meshv1.HeadsRequest) (*meshv1.HeadsResponse, error) {
	resp := &meshv1.HeadsResponse{}
	for _, t := range req.GetTopics() {
		h := &meshv1.Head{Topic: t, Epoch: fakeEpoch, Head: uint64(len(s.log.topic(t))), Oldest: 1}
		if strings.HasPrefix(t, "state/") { // they keep their last message
			h.Kept = h.GetHead()
		}
		resp.Heads = append(resp.Heads, h)
	}
	return resp, nil
}

func (s *fakeStore) ListNamespaces(_ context.Context, req *meshv1.ListNamespacesRequest) (*meshv1.ListNamespacesResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	resp := &meshv1.ListNamespacesResponse{Version: s.log.version}
	if req.GetHaveVersion() != s.log.version {
		resp.Namespaces = append(policy.Builtin(), s.log.namespaces...)
	}
	return resp, nil
}

func (s *fakeStore) PutNamespace(_ context.Context, req *meshv1.PutNamespaceRequest) (*meshv1.PutNamespaceResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.log.version++
	put := proto.CloneOf(req.GetNamespace())
	put.Version = s.log.version
	s.log.namespaces = append(slices.DeleteFunc(s.log.namespaces, func(ns *pushmeshv1.Namespace) bool {
		return ns.GetPrefix() == put.GetPrefix()
	}), put)
	return &meshv1.PutNamespaceResponse{Namespace: put}, nil
}

func (s *fakeStore) DeleteNamespace(_ context.Context, req *meshv1.DeleteNamespaceRequest) (*meshv1.DeleteNamespaceResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	n := len(s.log.namespaces)
	s.log.version++
	s.log.namespaces = slices.DeleteFunc(s.log.namespaces, func(ns *pushmeshv1.Namespace) bool { return ns.GetPrefix() == req.GetPrefix() })
	if len(s.log.namespaces) == n {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "no such namespace")
	}
	return &meshv1.DeleteNamespaceResponse{}, nil
}

func (s *fakeStore) ListSessions(_ context.Context, req *meshv1.ListSessionsRequest) (*meshv1.ListSessionsResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	resp := &meshv1.ListSessionsResponse{}
	for key, session := range s.log.sessions {
		if strings.HasPrefix(key, req.GetUser()) {
			resp.Sessions = append(resp.Sessions, session)
		}
	}
	return resp, nil
}

func (s *fakeStore) GetSession(_ context.Context, req *meshv1.GetSessionRequest) (*meshv1.GetSessionResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	session := s.log.sessions[req.GetUser()+"/"+req.GetName()]
	if session == nil {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "no such session")
	}
	return &meshv1.GetSessionResponse{Session: session}, nil
}

func (s *fakeStore) AttachSession(_ context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if !req.GetPeek() {
		return nil, code.New(wirev1.Code_CODE_INTERNAL, "a router attaches no session")
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return &meshv1.AttachSessionResponse{Resumed: true, Cursors: s.log.cursors}, nil
}

func (s *fakeStore) DeleteSession(_ context.Context, req *meshv1.DeleteSessionRequest) (*meshv1.DeleteSessionResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	k := req.GetUser() + "/" + req.GetName()
	resp := &meshv1.DeleteSessionResponse{Edge: s.log.sessions[k].GetEdge(), Generation: s.log.sessions[k].GetGeneration()}
	delete(s.log.sessions, k)
	return resp, nil
}

// AdoptSession says that an edge holds the session if there is one of that name.
func (s *fakeStore) AdoptSession(_ context.Context, req *meshv1.AdoptSessionRequest) (*meshv1.AdoptSessionResponse, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	k, to := req.GetUser()+"/"+req.GetName(), req.GetToUser()+"/"+req.GetToName()
	if s.log.sessions[k] == nil {
		return nil, code.New(wirev1.Code_CODE_NOT_FOUND, "no such session")
	}
	if s.log.sessions[to] != nil {
		return nil, code.New(wirev1.Code_CODE_ALREADY_EXISTS, "it is there")
	}
	resp := &meshv1.AdoptSessionResponse{Edge: s.log.sessions[k].GetEdge(), Generation: s.log.sessions[k].GetGeneration() + 1}
	if !req.GetDryRun() {
		s.log.sessions[to] = s.log.sessions[k]
		delete(s.log.sessions, k)
	}
	return resp, nil
}

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

// eventually polls until f is nil.
func eventually(tb testing.TB, what string, f func() error) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: %v", what, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}
