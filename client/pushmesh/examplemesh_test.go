package pushmesh_test

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// A mesh for the examples, in this process: an edge and a router that answer as real ones do.

// epoch of every topic.
const epoch = 1795000000000000

// exampleEdge is an edge with one durable topic, whose log it sends.
type exampleEdge struct {
	addr     string
	topic    string
	log      []string
	oldest   uint64
	listener net.Listener
	ended    sync.WaitGroup
}

func startEdge(topic string, log ...string) *exampleEdge {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	e := &exampleEdge{addr: l.Addr().String(), topic: topic, log: log, oldest: 1, listener: l}
	e.ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.ended.Go(func() { e.serve(c) })
		}
	})
	return e
}

func (e *exampleEdge) stop() {
	_ = e.listener.Close()
	e.ended.Wait()
}

// serve answers one connection until it ends.
func (e *exampleEdge) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	send := func(t wirev1.FrameType, m proto.Message) {
		b, err := wire.Append(nil, t, m)
		if err != nil {
			panic(err)
		}
		_, _ = c.Write(b)
	}
	for {
		t, body, err := wire.Read(r, nil, wire.MaxBody)
		if err != nil {
			return
		}
		switch t {
		case wirev1.FrameType_FRAME_TYPE_HELLO:
			send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Edge: "edge-1", HeartbeatMs: 30000, MaxFrame: 1 << 20, Version: 1, PublishWindow: 64, Features: []string{"presence"}})
		case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
			e.subscribe(body, send)
		case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE:
			var u wirev1.Unsubscribe
			if proto.Unmarshal(body, &u) == nil {
				send(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, &wirev1.Unsubscribed{Id: u.GetId()})
			}
		case wirev1.FrameType_FRAME_TYPE_NACK:
			var n wirev1.Nack
			if proto.Unmarshal(body, &n) == nil {
				send(wirev1.FrameType_FRAME_TYPE_MESSAGE, e.message(n.GetSeq(), 1, n.GetSub()))
			}
		case wirev1.FrameType_FRAME_TYPE_CLAIM:
			var m wirev1.Claim
			if proto.Unmarshal(body, &m) == nil {
				send(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, claimed(&m))
			}
		default:
			answer(t, body, send)
		}
	}
}

// answer answers what needs no more than that.
func answer(t wirev1.FrameType, body []byte, send func(wirev1.FrameType, proto.Message)) {
	var p wirev1.Publish
	var r wirev1.RefreshToken
	var w wirev1.Watch
	var s wirev1.State
	switch {
	case t == wirev1.FrameType_FRAME_TYPE_PUBLISH && proto.Unmarshal(body, &p) == nil:
		send(wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{Id: p.GetId(), Seq: 1, Epoch: epoch})
	case t == wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN && proto.Unmarshal(body, &r) == nil:
		send(wirev1.FrameType_FRAME_TYPE_REFRESHED, &wirev1.Refreshed{Id: r.GetId(), ExpiresAt: epoch})
	case t == wirev1.FrameType_FRAME_TYPE_WATCH && proto.Unmarshal(body, &w) == nil:
		there := []*wirev1.Presence_Member{{User: "ann", State: []byte("typing")}, {User: "bob", State: []byte("away")}}
		send(wirev1.FrameType_FRAME_TYPE_PRESENCE, &wirev1.Presence{Topic: w.GetTopic(), Snapshot: true, Members: there, Count: 2})
	case t == wirev1.FrameType_FRAME_TYPE_STATE && proto.Unmarshal(body, &s) == nil:
		send(wirev1.FrameType_FRAME_TYPE_STATED, &wirev1.Stated{Id: s.GetId()})
	}
}

// subscribe answers, and sends what the log holds behind the start that was asked for.
func (e *exampleEdge) subscribe(body []byte, send func(wirev1.FrameType, proto.Message)) {
	var s wirev1.Subscribe
	if err := proto.Unmarshal(body, &s); err != nil {
		return
	}
	from := s.GetSeq() + 1
	switch s.GetStart() {
	case wirev1.Start_START_LAST_N:
		from = uint64(len(e.log)) - s.GetSeq() + 1
	case wirev1.Start_START_SESSION:
		from = uint64(len(e.log)) + 1
	}
	for _, p := range s.GetPositions() {
		from = p.GetSeq() + 1
	}
	asked := s.GetStart() == wirev1.Start_START_AFTER_SEQ
	missed := e.oldest - min(from, e.oldest)
	send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{
		Id: s.GetId(), Epoch: epoch, Head: uint64(len(e.log)), Recovered: !asked || missed == 0, Missed: missed,
	})
	for seq := max(from, e.oldest); seq <= uint64(len(e.log)); seq++ {
		send(wirev1.FrameType_FRAME_TYPE_MESSAGE, e.message(seq, 0, s.GetId()))
	}
}

func (e *exampleEdge) message(seq uint64, attempt, sub uint32) *wirev1.Message {
	m := &wirev1.Message{Topic: e.topic, Seq: seq, Payload: []byte(e.log[seq-1]), Attempt: attempt}
	if sub > 0 {
		m.Subs = []uint32{sub}
	}
	return m
}

func claimed(m *wirev1.Claim) *wirev1.ClaimState {
	s := &wirev1.ClaimState{Id: m.GetId(), Resource: m.GetResource(), State: wirev1.ClaimState_STATE_GRANTED, Token: 7, ExpiresInMs: 30000}
	if m.GetOp() == wirev1.Claim_OP_RELEASE {
		s.State = wirev1.ClaimState_STATE_RELEASED
	}
	return s
}

// exampleRouter is a router whose mesh holds a topic with three messages, and two subscribers.
type exampleRouter struct {
	pushmeshv1.UnimplementedPublishServiceServer
	addr   string
	server *grpc.Server

	mu     sync.Mutex
	heads  map[string]uint64
	refuse int // calls of Publish
}

func startRouter() *exampleRouter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	r := &exampleRouter{addr: l.Addr().String(), server: grpc.NewServer(), heads: map[string]uint64{}}
	pushmeshv1.RegisterPublishServiceServer(r.server, r)
	pushmeshv1.RegisterHistoryServiceServer(r.server, exampleHistory{})
	pushmeshv1.RegisterPresenceServiceServer(r.server, examplePresence{})
	pushmeshv1.RegisterNamespaceServiceServer(r.server, exampleNamespaces{})
	pushmeshv1.RegisterSessionServiceServer(r.server, exampleSessions{})
	pushmeshv1.RegisterDeadLetterServiceServer(r.server, exampleLetters{})
	go func() { _ = r.server.Serve(l) }()
	return r
}

func (r *exampleRouter) stop() { r.server.Stop() }

// append numbers a message.
func (r *exampleRouter) append(topic string) *pushmeshv1.PublishResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heads[topic]++
	return &pushmeshv1.PublishResponse{Seq: r.heads[topic], Epoch: epoch}
}

func (r *exampleRouter) Publish(_ context.Context, req *pushmeshv1.PublishRequest) (*pushmeshv1.PublishResponse, error) {
	r.mu.Lock()
	refused := r.refuse > 0
	r.refuse--
	r.mu.Unlock()
	if !refused {
		return r.append(req.GetTopic()), nil
	}
	st, err := status.New(codes.ResourceExhausted, "the store can't keep up").WithDetails(
		&errdetails.ErrorInfo{Reason: "OVERLOADED", Domain: "pushmesh"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return nil, st.Err()
}

func (r *exampleRouter) PublishStream(stream grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		var resp pushmeshv1.PublishStreamResponse
		for _, it := range req.GetBatch() {
			res := &pushmeshv1.PublishStreamResponse_Result{Ref: it.GetRef()}
			if topic := it.GetMessage().GetTopic(); topic[0] == '$' {
				res.Code, res.Error = wirev1.Code_CODE_FORBIDDEN, "nobody publishes to $events/…"
			} else {
				res.Response = r.append(topic)
			}
			resp.Results = append(resp.Results, res)
		}
		if err := stream.Send(&resp); err != nil {
			return nil
		}
	}
}

type exampleHistory struct {
	pushmeshv1.UnimplementedHistoryServiceServer
}

func (exampleHistory) Head(_ context.Context, req *pushmeshv1.HeadRequest) (*pushmeshv1.HeadResponse, error) {
	return &pushmeshv1.HeadResponse{Heads: []*pushmeshv1.TopicHead{{Topic: req.GetTopics()[0], Epoch: epoch, Seq: 3, Oldest: 1}}}, nil
}

func (exampleHistory) Read(req *pushmeshv1.ReadRequest, stream grpc.ServerStreamingServer[pushmeshv1.ReadResponse]) error {
	var resp pushmeshv1.ReadResponse
	for i, text := range []string{"one", "two", "three"} {
		if seq := uint64(i + 1); seq >= req.GetFromSeq() {
			resp.Messages = append(resp.Messages, &pushmeshv1.StoredMessage{Topic: req.GetTopic(), Epoch: epoch, Seq: seq, Payload: []byte(text)})
		}
	}
	return stream.Send(&resp)
}

type examplePresence struct {
	pushmeshv1.UnimplementedPresenceServiceServer
}

func (examplePresence) List(_ context.Context, req *pushmeshv1.PresenceServiceListRequest) (*pushmeshv1.PresenceServiceListResponse, error) {
	if req.GetPageToken() == "" {
		return &pushmeshv1.PresenceServiceListResponse{Members: []*pushmeshv1.Member{{Topic: req.GetTopic(), Edge: "edge-1", ClientId: "ann"}}, NextPageToken: "2"}, nil
	}
	return &pushmeshv1.PresenceServiceListResponse{Members: []*pushmeshv1.Member{{Topic: req.GetTopic(), Edge: "edge-2", ClientId: "bob"}}}, nil
}

type exampleNamespaces struct {
	pushmeshv1.UnimplementedNamespaceServiceServer
}

func (exampleNamespaces) Get(_ context.Context, req *pushmeshv1.NamespaceServiceGetRequest) (*pushmeshv1.NamespaceServiceGetResponse, error) {
	return &pushmeshv1.NamespaceServiceGetResponse{Namespace: &pushmeshv1.Namespace{Prefix: req.GetPrefix(), Policy: &pushmeshv1.Policy{Durable: true}}}, nil
}

func (exampleNamespaces) Put(_ context.Context, req *pushmeshv1.NamespaceServicePutRequest) (*pushmeshv1.NamespaceServicePutResponse, error) {
	return &pushmeshv1.NamespaceServicePutResponse{Namespace: req.GetNamespace()}, nil
}

type exampleSessions struct {
	pushmeshv1.UnimplementedSessionServiceServer
}

func (exampleSessions) Get(_ context.Context, req *pushmeshv1.SessionServiceGetRequest) (*pushmeshv1.SessionServiceGetResponse, error) {
	return &pushmeshv1.SessionServiceGetResponse{Session: &pushmeshv1.Session{
		User: req.GetUser(), Name: req.GetName(), Cursors: []*pushmeshv1.Cursor{{Topic: "room/42/chat", Epoch: epoch, Floor: 1, Head: 3, Lag: 2}},
	}}, nil
}

type exampleLetters struct {
	pushmeshv1.UnimplementedDeadLetterServiceServer
}

func (exampleLetters) List(context.Context, *pushmeshv1.DeadLetterServiceListRequest) (*pushmeshv1.DeadLetterServiceListResponse, error) {
	return &pushmeshv1.DeadLetterServiceListResponse{DeadLetters: []*pushmeshv1.DeadLetter{{
		Id: 1, Topic: "room/42/chat", Epoch: epoch, Seq: 2, Reason: wirev1.Code_CODE_ATTEMPTS_EXHAUSTED, Attempts: 16, User: "client:ann", Session: "inbox",
	}}}, nil
}

func (exampleLetters) Replay(_ context.Context, req *pushmeshv1.DeadLetterServiceReplayRequest) (*pushmeshv1.DeadLetterServiceReplayResponse, error) {
	return &pushmeshv1.DeadLetterServiceReplayResponse{Replayed: uint64(len(req.GetIds()))}, nil
}
