package pushmesh

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// patience bounds every wait of these tests, and says only that something never came: nothing comes
// near it.
const patience = 60 * time.Second

// nobody listens on port 1. A port that was listened on is soon another program's.
const nobody = "127.0.0.1:1"

// fakeEdge is a real listener whose connections are handed to the test one by one.
type fakeEdge struct {
	t     *testing.T
	ln    net.Listener
	conns chan *edgeConn
	wg    sync.WaitGroup
}

func newFakeEdge(t *testing.T) *fakeEdge {
	t.Helper()
	return newFakeEdgeWith(t, nil)
}

// newFakeEdgeWith takes TLS alone where cfg is given.
func newFakeEdgeWith(t *testing.T, cfg *tls.Config) *fakeEdge {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg != nil {
		ln = tls.NewListener(ln, cfg)
	}
	e := &fakeEdge{t: t, ln: ln, conns: make(chan *edgeConn, 100)}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.conns <- &edgeConn{t: t, conn: c, br: bufio.NewReader(c)}
		}
	}()
	t.Cleanup(e.stop)
	return e
}

func (e *fakeEdge) stop() {
	_ = e.ln.Close()
	e.wg.Wait()
}

func (e *fakeEdge) addr() string { return e.ln.Addr().String() }

// accept waits for a connection of this test and takes its Hello. Clients that other programs left
// behind may find their old port taken by this listener: they are turned away.
func (e *fakeEdge) accept() (*edgeConn, *wirev1.Hello) {
	e.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case c := <-e.conns:
			_ = c.conn.SetReadDeadline(time.Now().Add(patience))
			ft, body, err := wire.Read(c.br, nil, wire.MaxHello)
			hello := &wirev1.Hello{}
			if err == nil && ft == wirev1.FrameType_FRAME_TYPE_HELLO && proto.Unmarshal(body, hello) == nil && hello.GetAgent() == e.t.Name() {
				e.t.Cleanup(c.close)
				return c, hello
			}
			c.close()
		case <-deadline:
			e.t.Fatal("nobody connects")
		}
	}
}

// welcome accepts a connection and answers Welcome.
func (e *fakeEdge) welcome() *edgeConn {
	e.t.Helper()
	c, _ := e.accept()
	c.send(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{ConnectionId: 1, Edge: "edge-a", HeartbeatMs: 30000, MaxFrame: 1 << 20, Version: 1, ClientId: "c1", PublishWindow: 2})
	return c
}

// edgeConn is the edge's end of one connection.
type edgeConn struct {
	t    *testing.T
	conn net.Conn
	br   *bufio.Reader
}

type sent struct {
	t wirev1.FrameType
	m proto.Message
}

func (c *edgeConn) send(ft wirev1.FrameType, m proto.Message) {
	c.t.Helper()
	c.sendAll(sent{ft, m})
}

// sendAll sends frames with one write: they arrive together.
func (c *edgeConn) sendAll(frames ...sent) {
	c.t.Helper()
	var out []byte
	for _, f := range frames {
		var err error
		if out, err = wire.Append(out, f.t, f.m); err != nil {
			c.t.Fatal(err)
		}
	}
	if _, err := c.conn.Write(out); err != nil {
		c.t.Fatalf("send %v: %v", frames[0].t, err)
	}
}

// any reads one frame.
func (c *edgeConn) any() (wirev1.FrameType, []byte) {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	ft, body, err := wire.Read(c.br, nil, wire.MaxBody)
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return ft, body
}

// next reads one frame that is no Ping.
func (c *edgeConn) next() (wirev1.FrameType, []byte) {
	c.t.Helper()
	for {
		if ft, body := c.any(); ft != wirev1.FrameType_FRAME_TYPE_PING {
			return ft, body
		}
	}
}

func (c *edgeConn) expect(want wirev1.FrameType, into proto.Message) {
	c.t.Helper()
	ft, body := c.next()
	if ft != want {
		c.t.Fatalf("got %v, want %v", ft, want)
	}
	if err := proto.Unmarshal(body, into); err != nil {
		c.t.Fatal(err)
	}
}

func (c *edgeConn) subscribe() *wirev1.Subscribe {
	c.t.Helper()
	m := &wirev1.Subscribe{}
	c.expect(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)
	return m
}

// subscribed takes a Subscribe and answers it.
func (c *edgeConn) subscribed(epoch, head uint64, recovered bool) *wirev1.Subscribe {
	c.t.Helper()
	m := c.subscribe()
	c.send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Epoch: epoch, Head: head, Recovered: recovered})
	return m
}

func (c *edgeConn) message(topic string, seq uint64, attempt uint32, subs ...uint32) {
	c.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_MESSAGE, &wirev1.Message{Topic: topic, Seq: seq, Attempt: attempt, Subs: subs, Payload: []byte{byte(seq)}})
}

func (c *edgeConn) progress(p *wirev1.Progress) {
	c.t.Helper()
	c.send(wirev1.FrameType_FRAME_TYPE_PROGRESS, p)
}

// ackedThrough reads Acks until one covers everything up to seq.
func (c *edgeConn) ackedThrough(topic string, seq uint64) {
	c.t.Helper()
	for {
		var a wirev1.Ack
		c.expect(wirev1.FrameType_FRAME_TYPE_ACK, &a)
		for _, e := range a.GetEntries() {
			if e.GetTopic() == topic && e.GetThrough() && e.GetSeq() >= seq {
				return
			}
		}
	}
}

// ackedAlone reads one Ack that names exactly these seqs, none of them as "all up to".
func (c *edgeConn) ackedAlone(topic string, seqs ...uint64) {
	c.t.Helper()
	for len(seqs) > 0 {
		var a wirev1.Ack
		c.expect(wirev1.FrameType_FRAME_TYPE_ACK, &a)
		for _, e := range a.GetEntries() {
			if len(seqs) == 0 || e.GetTopic() != topic || e.GetThrough() || e.GetSeq() != seqs[0] {
				c.t.Fatalf("acked %v, want %v alone", e, seqs)
			}
			seqs = seqs[1:]
		}
	}
}

func (c *edgeConn) close() { _ = c.conn.Close() }

func newTestSubscriber(t *testing.T, cfg SubscriberConfig) *Subscriber {
	t.Helper()
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff = time.Millisecond
	}
	if cfg.DialTimeout == 0 {
		// the fake edge answers once, to the connection that it was asked on
		cfg.DialTimeout = patience
	}
	cfg.Agent = t.Name()
	s, err := NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// in is a context that ends after a time.
func in(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// log collects what a handler got.
type seqLog struct {
	mu   sync.Mutex
	seqs []uint64
	more chan struct{}
}

func newSeqLog() *seqLog { return &seqLog{more: make(chan struct{}, 1)} }

func (l *seqLog) handle(_ context.Context, d *Delivery) error {
	l.add(d.Seq)
	return nil
}

func (l *seqLog) add(seq uint64) {
	l.mu.Lock()
	l.seqs = append(l.seqs, seq)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (l *seqLog) wait(t *testing.T, want ...uint64) {
	t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		got := append([]uint64(nil), l.seqs...)
		l.mu.Unlock()
		if len(got) >= len(want) {
			for i := range got {
				if i >= len(want) || got[i] != want[i] {
					t.Fatalf("handled %v, want %v", got, want)
				}
			}
			return
		}
		select {
		case <-l.more:
		case <-deadline:
			t.Fatalf("handled %v, want %v", got, want)
		}
	}
}
