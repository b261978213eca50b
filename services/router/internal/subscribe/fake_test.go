package subscribe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/router/internal/interest"
)

// patience bounds every wait of these tests, and says only that something never came.
const patience = 2 * time.Minute

// world is a service behind a real gRPC server, with fake edges. It is their NATS, too.
type world struct {
	t       *testing.T
	service *Service
	conn    *grpc.ClientConn

	mu     sync.Mutex
	edges  map[string]*edge
	homes  []interest.Home
	issued int
}

var secret = bytes.Repeat([]byte{7}, 16)

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, edges: map[string]*edge{}}
	cfg := Config{
		RouterID: "r1", Edges: w, Via: w, Caller: func(context.Context) string { return "me" }, MaxStreams: 10, MaxPerCaller: 10, Silent: patience, Registry: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&cfg)
	}
	w.service = New(cfg)
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec.Codec{}))
	pushmeshv1.RegisterSubscribeServiceServer(server, w.service)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln)
	}()
	w.conn, err = grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.conn.Close()
		server.Stop()
		<-served
		for _, e := range w.edges {
			e.stop()
		}
	})
	return w
}

// Homes implements Edges.
func (w *world) Homes() []interest.Home {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]interest.Home(nil), w.homes...)
}

// Request implements Requester.
func (w *world) Request(_ context.Context, subject string, data []byte) ([]byte, error) {
	var req meshv1.EdgeRequest
	if err := proto.Unmarshal(data, &req); err != nil || req.GetTicket().GetRouterId() != "r1" {
		return nil, errors.New("not understood")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, e := range w.edges {
		if subject == bus.EdgeRequest(id) {
			w.issued++
			reply := &meshv1.EdgeReply{Ticket: bytes.Clone(secret), Address: e.ln.Addr().String()}
			if e.refuses {
				reply = &meshv1.EdgeReply{}
			}
			return proto.Marshal(reply)
		}
	}
	return nil, errors.New("no responders")
}

// edge is a fake one: a real listener whose connections are the test's.
type edge struct {
	w       *world
	id      string
	ln      net.Listener
	conns   chan net.Conn
	done    chan struct{}
	refuses bool
}

func (w *world) edge(id string) *edge {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	e := &edge{w: w, id: id, ln: ln, conns: make(chan net.Conn, 100), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.conns <- c
		}
	}()
	w.mu.Lock()
	w.edges[id] = e
	w.mu.Unlock()
	w.live(append(w.Homes(), interest.Home{Edge: interest.Edge{ID: id}})...)
	return e
}

func (w *world) live(homes ...interest.Home) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.homes = homes
}

func (e *edge) stop() {
	_ = e.ln.Close()
	<-e.done
}

// peer is one connection at an edge.
type peer struct {
	t     *testing.T
	conn  net.Conn
	br    *bufio.Reader
	hello *wirev1.Hello
}

// accept takes a connection and its Hello, without an answer.
func (e *edge) accept() *peer {
	t := e.w.t
	t.Helper()
	select {
	case c := <-e.conns:
		t.Cleanup(func() { _ = c.Close() })
		p := &peer{t: t, conn: c, br: bufio.NewReader(c), hello: &wirev1.Hello{}}
		p.expect(wirev1.FrameType_FRAME_TYPE_HELLO, p.hello)
		if string(p.hello.GetTicket()) != string(secret)+"r1" || p.hello.GetVersion() != 1 {
			t.Fatalf("hello: %v", p.hello)
		}
		return p
	case <-time.After(patience):
		t.Fatalf("nobody connects to %s", e.id)
		return nil
	}
}

func (e *edge) welcome(connection uint64) *peer {
	e.w.t.Helper()
	p := e.accept()
	id := p.hello.GetClientId()
	if id == "" {
		id = "made-up"
	}
	p.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{ConnectionId: connection, Edge: e.id, ClientId: id, MaxFrame: 1 << 20})
	return p
}

func (p *peer) send(t wirev1.FrameType, m proto.Message) {
	p.t.Helper()
	b, err := wire.Append(nil, t, m)
	if err == nil {
		_, err = p.conn.Write(b)
	}
	if err != nil {
		p.t.Fatalf("%v: %v", t, err)
	}
}

// next is the next frame that is no Ping of the router's.
func (p *peer) next() (wirev1.FrameType, []byte, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		t, body, err := wire.Read(p.br, nil, wire.MaxBody)
		var ping wirev1.Ping
		if err == nil && t == wirev1.FrameType_FRAME_TYPE_PING && proto.Unmarshal(body, &ping) == nil && ping.GetSentAt() >= 1<<32 {
			pong, _ := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{SentAt: ping.GetSentAt()})
			_, _ = p.conn.Write(pong) // the router may have hung up meanwhile
			continue
		}
		return t, body, err
	}
}

func (p *peer) expect(want wirev1.FrameType, m proto.Message) {
	p.t.Helper()
	t, body, err := p.next()
	if err == nil {
		err = proto.Unmarshal(body, m)
	}
	if err != nil || t != want {
		p.t.Fatalf("got %v (%v), want %v", t, err, want)
	}
}

// hungUp waits until the router has hung up, and returns the types of the frames before.
func (p *peer) hungUp() (types []wirev1.FrameType) {
	for {
		t, _, err := p.next()
		if err != nil {
			_ = p.conn.Close()
			return types
		}
		types = append(types, t)
	}
}

// client is a backend's stream.
type client struct {
	t      *testing.T
	rpc    grpc.BidiStreamingClient[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]
	cancel context.CancelFunc
	events []*pushmeshv1.SubscribeEvent
}

func (w *world) open(first *pushmeshv1.SubscribeRequest) *client {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	w.t.Cleanup(cancel)
	rpc, err := pushmeshv1.NewSubscribeServiceClient(w.conn).Subscribe(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{t: w.t, rpc: rpc, cancel: cancel}
	if first != nil {
		c.send(first)
	}
	return c
}

func (c *client) send(req *pushmeshv1.SubscribeRequest) { _ = c.rpc.Send(req) }

func (c *client) next() (*pushmeshv1.SubscribeEvent, error) {
	for len(c.events) == 0 {
		resp, err := c.rpc.Recv()
		if err != nil {
			return nil, err
		}
		c.events = resp.GetEvents()
	}
	e := c.events[0]
	c.events = c.events[1:]
	return e, nil
}

func (c *client) must() *pushmeshv1.SubscribeEvent {
	c.t.Helper()
	e, err := c.next()
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

// ends takes what the stream ends with: a code, and RetryInfo where that can help.
func (c *client) ends(want wirev1.Code) (why string, again time.Duration) {
	c.t.Helper()
	for {
		e, err := c.next()
		if err == nil {
			c.t.Logf("passed over %v", e)
			continue
		}
		if err.Error() == "EOF" && want == wirev1.Code_CODE_OK {
			return "", 0
		}
		end := code.From(err)
		if end.Code != want || code.Retryable(want) != (end.RetryAfter > 0) {
			c.t.Fatalf("the stream ended with %v (%v), want %v", err, end.RetryAfter, want)
		}
		return end.Message, end.RetryAfter
	}
}

func hello(h *wirev1.Hello, move bool) *pushmeshv1.SubscribeRequest {
	return &pushmeshv1.SubscribeRequest{Request: &pushmeshv1.SubscribeRequest_Hello{Hello: h}, Move: move}
}

func subscribe(m *wirev1.Subscribe) *pushmeshv1.SubscribeRequest {
	return &pushmeshv1.SubscribeRequest{Request: &pushmeshv1.SubscribeRequest_Subscribe{Subscribe: m}}
}

func unsubscribe(id uint32) *pushmeshv1.SubscribeRequest {
	return &pushmeshv1.SubscribeRequest{Request: &pushmeshv1.SubscribeRequest_Unsubscribe{Unsubscribe: &wirev1.Unsubscribe{Id: id}}}
}

func ack(connection uint64, entries ...*wirev1.Ack_Entry) *pushmeshv1.SubscribeRequest {
	return &pushmeshv1.SubscribeRequest{Connection: connection, Request: &pushmeshv1.SubscribeRequest_Ack{Ack: &wirev1.Ack{Entries: entries}}}
}

func nack(connection uint64, m *wirev1.Nack) *pushmeshv1.SubscribeRequest {
	return &pushmeshv1.SubscribeRequest{Connection: connection, Request: &pushmeshv1.SubscribeRequest_Nack{Nack: m}}
}
