package pushmesh_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/client"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// A subscriber ACKs what its handler has dealt with, and connects again by itself.
func ExampleSubscriber() {
	edge := startEdge("room/42/chat", "hello", "bye")
	defer edge.stop()

	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	handled := make(chan bool)
	_, err = sub.Subscribe(context.Background(), "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println(d.Topic, d.Seq, string(d.Payload))
		handled <- d.Seq == 2
		return nil // ACKs it; an error has it come again
	}, pushmesh.WithAck(), pushmesh.FromEarliest())
	if err != nil {
		fmt.Println(err)
		return
	}
	for last := false; !last; last = <-handled {
	}
	fmt.Println("closed:", sub.Close())
	// Output:
	// room/42/chat 1 hello
	// room/42/chat 2 bye
	// closed: <nil>
}

// Without a session a program keeps its positions itself, with what it did about the messages, and
// goes on behind them at any edge.
func ExampleFromPositions() {
	before, after := startEdge("room/42/chat", "one", "two"), startEdge("room/42/chat", "one", "two", "three")
	defer before.stop()
	defer after.stop()

	var saved pushmesh.Position // in a program: a row of its database
	// follow handles messages up to the one with a seq.
	follow := func(addr string, through uint64, start pushmesh.Option) error {
		sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{addr}, ClientID: "ann"})
		if err != nil {
			return err
		}
		reached := make(chan struct{})
		_, err = sub.Subscribe(context.Background(), "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
			fmt.Println(d.Seq, string(d.Payload))
			saved = pushmesh.Position{Topic: d.Topic, Epoch: d.Epoch, Seq: d.Seq}
			if d.Seq == through {
				close(reached)
			}
			return nil
		}, pushmesh.WithAck(), start)
		if err == nil {
			<-reached
		}
		return errors.Join(err, sub.Close())
	}
	err := follow(before.addr, 2, pushmesh.FromEarliest())
	fmt.Println("stopped behind", saved.Seq, err)
	err = follow(after.addr, 3, pushmesh.FromPositions(saved))
	fmt.Println("stopped behind", saved.Seq, err)
	// Output:
	// 1 one
	// 2 two
	// stopped behind 2 <nil>
	// 3 three
	// stopped behind 3 <nil>
}

// A handler that can't deal with a message now asks for it again, some time later.
func ExampleNackAfter() {
	edge := startEdge("room/42/jobs", "resize a picture")
	defer edge.stop()

	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "worker"})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	_, err = sub.Subscribe(context.Background(), "room/42/jobs", func(_ context.Context, d *pushmesh.Delivery) error {
		fmt.Println("attempt", d.Attempt)
		if d.Attempt == 0 {
			return pushmesh.NackAfter(time.Second, errors.New("the printer is busy"))
		}
		close(done)
		return nil
	}, pushmesh.WithAck(), pushmesh.FromEarliest(), pushmesh.WithGroup("workers"))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-done
	fmt.Println("closed:", sub.Close())
	// Output:
	// attempt 0
	// attempt 1
	// closed: <nil>
}

// A gap is what can't be had any more: here the client was away for longer than messages are kept.
func ExampleGap() {
	edge := startEdge("room/42/chat", "one", "two", "three", "four")
	edge.oldest = 4
	defer edge.stop()

	told := make(chan struct{})
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{edge.addr}, ClientID: "ann",
		OnGap: func(g pushmesh.Gap) {
			fmt.Printf("%d messages of %s are gone (%v): load the room anew\n", g.Missed, g.Topic, g.Code)
			close(told)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handled := make(chan struct{})
	_, err = sub.Subscribe(context.Background(), "room/42/chat", func(_ context.Context, d *pushmesh.Delivery) error {
		<-told
		fmt.Println("going on with", d.Seq)
		close(handled)
		return nil
	}, pushmesh.WithAck(), pushmesh.FromSeq(epoch, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-handled
	fmt.Println("closed:", sub.Close())
	// Output:
	// 2 messages of room/42/chat are gone (CODE_RETENTION): load the room anew
	// going on with 4
	// closed: <nil>
}

// A claim is held until it is released or lost; what it protects compares tokens.
func ExampleSubscriber_Acquire() {
	edge := startEdge("")
	defer edge.stop()

	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{Addrs: []string{edge.addr}, ClientID: "ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	printer, err := sub.Acquire(context.Background(), "printer/3")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("printing with token", printer.Token(), "- held:", printer.Held())
	fmt.Println("released:", printer.Release(context.Background()))
	fmt.Println("closed:", sub.Close())
	// Output:
	// printing with token 7 - held: true
	// released: <nil>
	// closed: <nil>
}

// A result with a Seq is on disk; without one the message was ephemeral, or waits for its
// DeliverAt.
func ExampleProducer_Publish() {
	router := startRouter()
	defer router.stop()

	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"hello", "bye"} {
		r, err := p.Publish(context.Background(), pushmesh.Message{Topic: "room/42/chat", Payload: []byte(text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(text, "is on disk as number", r.Seq)
	}
	fmt.Println("closed:", p.Close())
	// Output:
	// hello is on disk as number 1
	// bye is on disk as number 2
	// closed: <nil>
}

// Messages are published without waiting for each other's answers; Flush waits for all.
func ExampleProducer_PublishAsync() {
	router := startRouter()
	defer router.stop()

	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var mu sync.Mutex
	stored := 0
	for i := range 100 {
		err := p.PublishAsync(context.Background(), pushmesh.Message{Topic: "prices/oil", Payload: []byte{byte(i)}}, func(r pushmesh.Result, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.Seq > 0 {
				stored++
			}
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	mu.Lock()
	fmt.Println(stored, "are on disk")
	mu.Unlock()
	fmt.Println("closed:", p.Close())
	// Output:
	// 100 are on disk
	// closed: <nil>
}

// An error says whether trying again can help, and whether it may have happened nevertheless.
func ExampleError() {
	router := startRouter()
	defer router.stop()

	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router.addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = p.Publish(context.Background(), pushmesh.Message{Topic: "$events/connect", Payload: []byte("mine")})
	var refused *pushmesh.Error
	switch {
	case err == nil:
		fmt.Println("published")
	case !errors.As(err, &refused):
		fmt.Println("the context is over, or the producer is closed:", err)
	case refused.Unknown:
		fmt.Println("it may have been published")
	case refused.Retryable():
		fmt.Println("try again after", refused.RetryAfter)
	default:
		fmt.Println("never:", refused.Code)
	}
	fmt.Println("closed:", p.Close())
	// Output:
	// never: CODE_FORBIDDEN
	// closed: <nil>
}

// Calls without the SDK: a status says by its RetryInfo whether trying again can help, and when. A
// call that got no answer has none, and may have been done: a DedupeKey has it done once.
func Example_retry() {
	router := startRouter()
	defer router.stop()
	router.refuse = 1 // the first call, with a time to come back

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	publish := func(ctx context.Context) error {
		r, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, &pushmeshv1.PublishRequest{
			Topic: "user/42/orders", Payload: []byte("paid"), DedupeKey: "order-4711-paid",
		})
		if err == nil {
			fmt.Println("on disk as number", r.GetSeq())
		}
		return err
	}
	fmt.Println("ended:", retry(context.Background(), publish))
	// Output:
	// OVERLOADED: again in 1ms
	// on disk as number 1
	// ended: <nil>
}

// retry repeats a call as long as that can help, and ctx lasts.
func retry(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(ctx)
		st, ok := status.FromError(err)
		if err == nil || !ok {
			return err
		}
		again, wait := st.Code() == codes.Unavailable, 100*time.Millisecond // no router answered
		for _, d := range st.Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				again = false // the mesh itself refused: it says below whether to come back
				fmt.Print(d.GetReason(), ": ")
			case *errdetails.RetryInfo:
				again, wait = true, d.GetRetryDelay().AsDuration()
			}
		}
		if !again {
			return err
		}
		fmt.Println("again in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// What a topic's log holds: its head, and its last messages.
func Example_history() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	history := pushmeshv1.NewHistoryServiceClient(conn)
	heads, err := history.Head(context.Background(), &pushmeshv1.HeadRequest{Topics: []string{"room/42/chat"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	head := heads.GetHeads()[0]
	fmt.Println("head", head.GetSeq(), "oldest", head.GetOldest())
	last := uint64(2) // this many
	stream, err := history.Read(context.Background(), &pushmeshv1.ReadRequest{
		Topic: "room/42/chat", Epoch: head.GetEpoch(), FromSeq: head.GetSeq() - min(head.GetSeq(), last) + 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		part, err := stream.Recv()
		if err != nil {
			fmt.Println("complete:", errors.Is(err, io.EOF))
			return
		}
		for _, m := range part.GetMessages() {
			fmt.Println(m.GetSeq(), string(m.GetPayload()))
		}
	}
	// Output:
	// head 3 oldest 1
	// 2 two
	// 3 three
	// complete: true
}

// Who is subscribed to a topic, page by page. Its namespace has presence.
func Example_presence() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	presence := pushmeshv1.NewPresenceServiceClient(conn)
	for page := ""; ; {
		members, err := presence.List(context.Background(), &pushmeshv1.PresenceServiceListRequest{Topic: "room/42/chat", PageToken: page})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range members.GetMembers() {
			fmt.Println(m.GetClientId(), "on", m.GetEdge())
		}
		if page = members.GetNextPageToken(); page == "" {
			return
		}
	}
	// Output:
	// ann on edge-1
	// bob on edge-2
}

// How topics of a prefix behave. Put replaces the whole policy: read it before you change a part.
func Example_namespaces() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	namespaces := pushmeshv1.NewNamespaceServiceClient(conn)
	got, err := namespaces.Get(context.Background(), &pushmeshv1.NamespaceServiceGetRequest{Prefix: "room"})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := got.GetNamespace().GetPolicy()
	policy.Presence, policy.Retention = true, durationpb.New(7*24*time.Hour)
	put, err := namespaces.Put(context.Background(), &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "room", Policy: policy},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := put.GetNamespace().GetPolicy()
	fmt.Println("durable", p.GetDurable(), "presence", p.GetPresence(), "retention", p.GetRetention().AsDuration())
	fmt.Println("processes that may not know it yet:", len(put.GetLagging()))
	// Output:
	// durable true presence true retention 168h0m0s
	// processes that may not know it yet: 0
}

// How far a session is in each topic.
func Example_sessions() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	sessions := pushmeshv1.NewSessionServiceClient(conn)
	// Without authentication the user of a client is "client:" and its id.
	got, err := sessions.Get(context.Background(), &pushmeshv1.SessionServiceGetRequest{User: "client:ann", Name: "inbox"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range got.GetSession().GetCursors() {
		fmt.Println(c.GetTopic(), "through", c.GetFloor(), "of", c.GetHead(), "- not ACKed:", c.GetLag())
	}
	// Output:
	// room/42/chat through 1 of 3 - not ACKed: 2
}

// What sessions gave up: look at it, then publish it again, or discard it.
func Example_deadLetters() {
	router := startRouter()
	defer router.stop()

	conn, err := grpc.NewClient(router.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	letters := pushmeshv1.NewDeadLetterServiceClient(conn)
	all, err := letters.List(context.Background(), &pushmeshv1.DeadLetterServiceListRequest{Filter: "room/#"})
	if err != nil {
		fmt.Println(err)
		return
	}
	var ids []uint64
	for _, l := range all.GetDeadLetters() {
		fmt.Println(l.GetTopic(), l.GetSeq(), l.GetReason(), "after", l.GetAttempts(), "attempts of", l.GetUser())
		ids = append(ids, l.GetId())
	}
	replayed, err := letters.Replay(context.Background(), &pushmeshv1.DeadLetterServiceReplayRequest{Ids: ids})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("published again:", replayed.GetReplayed())
	// Output:
	// room/42/chat 2 CODE_ATTEMPTS_EXHAUSTED after 16 attempts of client:ann
	// published again: 1
}

// From here on: a mesh for the examples, in this process. A program has a real one.

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
			send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Edge: "edge-1", HeartbeatMs: 30000, MaxFrame: 1 << 20, Version: 1, PublishWindow: 64})
		case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
			e.subscribe(body, send)
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
		}
	}
}

// subscribe answers, and sends what the log holds behind the start that was asked for.
func (e *exampleEdge) subscribe(body []byte, send func(wirev1.FrameType, proto.Message)) {
	var s wirev1.Subscribe
	if err := proto.Unmarshal(body, &s); err != nil {
		return
	}
	from := s.GetSeq() + 1
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
	s := &wirev1.ClaimState{Id: m.GetId(), Resource: m.GetResource(), State: pushmesh.ClaimGranted, Token: 7, ExpiresInMs: 30000}
	if m.GetOp() == wirev1.Claim_OP_RELEASE {
		s.State = pushmesh.ClaimReleased
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
