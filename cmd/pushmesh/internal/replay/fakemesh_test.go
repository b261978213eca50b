package replay

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// fakeMesh speaks the subscriber protocol from an in-memory log, and commits the faults that a test
// plants. It is an edge, a router's Head, and a producer in one.
type fakeMesh struct {
	pushmeshv1.UnimplementedHistoryServiceServer
	t     *testing.T
	edge  string
	heads string

	mu    sync.Mutex
	logs  map[string][][]byte
	conns map[*fakeConn]bool
	acks  map[string]uint64 // highest seq ACKed by any subscriber
	acked chan struct{}     // a token at every ACK
	opens int

	// refuse is what the edge has against a Hello; nil: nothing.
	refuse func(*wirev1.Hello) *wirev1.Error
	// fault says what to do with the seq-th message on the n-th connection; nil: deliver.
	fault func(conn int, seq uint64) fault
}

type fault int

const (
	deliver fault = iota
	lose
	cut   // close the connection instead
	twice // under the same seq, as a redelivery is
)

type fakeConn struct {
	net.Conn
	n     int
	topic string
}

const fakeEpoch = 77

func newFakeMesh(t *testing.T) *fakeMesh {
	t.Helper()
	f := &fakeMesh{t: t, logs: map[string][][]byte{}, conns: map[*fakeConn]bool{}, acks: map[string]uint64{}, acked: make(chan struct{}, 1)}
	edge, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heads, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.edge, f.heads = edge.Addr().String(), heads.Addr().String()
	srv := grpc.NewServer()
	pushmeshv1.RegisterHistoryServiceServer(srv, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(heads) })
	wg.Go(func() {
		for {
			conn, err := edge.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = edge.Close()
		srv.Stop()
		wg.Wait()
	})
	return f
}

func (f *fakeMesh) serve(conn net.Conn) {
	defer conn.Close()
	c := &fakeConn{Conn: conn}
	for {
		ft, body, err := wire.Read(conn, nil, wire.MaxHello)
		if err != nil {
			f.mu.Lock()
			delete(f.conns, c)
			f.mu.Unlock()
			return
		}
		switch ft {
		case wirev1.FrameType_FRAME_TYPE_HELLO:
			if f.refuse != nil {
				m := &wirev1.Hello{}
				if err := proto.Unmarshal(body, m); err != nil {
					f.t.Error(err)
				}
				if why := f.refuse(m); why != nil {
					f.send(c, wirev1.FrameType_FRAME_TYPE_ERROR, why)
					continue
				}
			}
			f.send(c, wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{Version: 1, HeartbeatMs: 30000})
		case wirev1.FrameType_FRAME_TYPE_SUBSCRIBE:
			f.subscribe(c, body)
		case wirev1.FrameType_FRAME_TYPE_ACK:
			f.ack(body)
		}
	}
}

func (f *fakeMesh) subscribe(c *fakeConn, body []byte) {
	var m wirev1.Subscribe
	if err := proto.Unmarshal(body, &m); err != nil {
		f.t.Error(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opens++
	c.n, c.topic = f.opens, m.GetFilter()
	head := uint64(len(f.logs[c.topic]))
	after := head
	if m.GetStart() == wirev1.Start_START_AFTER_SEQ {
		after = m.GetSeq()
	}
	f.send(c, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &wirev1.Subscribed{Id: m.GetId(), Epoch: fakeEpoch, Head: head, Recovered: true})
	f.conns[c] = true
	for seq := after + 1; seq <= head; seq++ {
		f.deliver(c, seq)
	}
}

func (f *fakeMesh) send(c net.Conn, ft wirev1.FrameType, m proto.Message) {
	frame, err := wire.Append(nil, ft, m)
	if err != nil {
		f.t.Error(err)
	}
	_, _ = c.Write(frame)
}

func (f *fakeMesh) deliver(c *fakeConn, seq uint64) {
	what := deliver
	if f.fault != nil {
		what = f.fault(c.n, seq)
	}
	body, err := wire.Body(&wirev1.Message{Payload: f.logs[c.topic][seq-1]})
	if err != nil {
		f.t.Error(err)
	}
	frame := wire.AppendMessage(nil, c.topic, seq, body)
	switch what {
	case lose:
		return
	case cut:
		delete(f.conns, c)
		_ = c.Close()
		return
	case twice:
		_, _ = c.Write(frame)
	}
	_, _ = c.Write(frame)
}

func (f *fakeMesh) ack(body []byte) {
	var m wirev1.Ack
	if err := proto.Unmarshal(body, &m); err != nil {
		f.t.Error(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range m.GetEntries() {
		if e.GetEpoch() != fakeEpoch || !e.GetThrough() {
			f.t.Errorf("ack %v", e)
		}
		f.acks[e.GetTopic()] = max(f.acks[e.GetTopic()], e.GetSeq())
	}
	select {
	case f.acked <- struct{}{}:
	default:
	}
}

// allAcked reports whether somebody has ACKed the end of every log.
func (f *fakeMesh) allAcked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, log := range f.logs {
		if f.acks[topic] != uint64(len(log)) {
			return false
		}
	}
	return true
}

// publish makes fakeMesh a producer.
func (f *fakeMesh) publish(_ context.Context, topic string, payload []byte, done func(error)) error {
	f.mu.Lock()
	f.logs[topic] = append(f.logs[topic], payload)
	for c := range f.conns {
		if c.topic == topic {
			f.deliver(c, uint64(len(f.logs[topic])))
		}
	}
	f.mu.Unlock()
	done(nil)
	return nil
}

func (f *fakeMesh) close() error { return nil }

// Head answers as a router would.
func (f *fakeMesh) Head(_ context.Context, r *pushmeshv1.HeadRequest) (*pushmeshv1.HeadResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out pushmeshv1.HeadResponse
	for _, t := range r.GetTopics() {
		out.Heads = append(out.Heads, &pushmeshv1.TopicHead{Topic: t, Epoch: fakeEpoch, Seq: uint64(len(f.logs[t]))})
	}
	return &out, nil
}
