// Package backend subscribes through a router (SubscribeService) event by event, so that tests can
// say exactly what is sent and see exactly what comes. It hides nothing, but tries to open a stream
// again where the mesh says that this helps.
package backend

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Patience is how long an event may take that must come; a busy machine is no failure.
const Patience = 2 * time.Minute

// Stream is one stream. Its methods fail the test instead of returning errors.
type Stream struct {
	t      testing.TB
	rpc    grpc.BidiStreamingClient[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]
	cancel context.CancelFunc
	events []*pushmeshv1.SubscribeEvent
	// Connection of the last Welcome.
	Connection uint64
}

// Begin opens a stream without saying anything.
func Begin(t testing.TB, conn *grpc.ClientConn) *Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*Patience)
	t.Cleanup(cancel)
	rpc, err := pushmeshv1.NewSubscribeServiceClient(conn).Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &Stream{t: t, rpc: rpc, cancel: cancel}
}

// Open opens a stream, says hello and takes Welcome.
func Open(t testing.TB, conn *grpc.ClientConn, hello *wirev1.Hello, move bool) (*Stream, *wirev1.Welcome) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; <-time.After(20 * time.Millisecond) {
		s := Begin(t, conn)
		s.Send(&pushmeshv1.SubscribeRequest{Request: &pushmeshv1.SubscribeRequest_Hello{Hello: hello}, Move: move})
		e, err := s.Next()
		if err == nil {
			return s, e.GetWelcome()
		}
		s.Close()
		if e := code.From(err); !code.Retryable(e.Code) || time.Now().After(deadline) {
			t.Fatalf("no stream: %v", err)
		}
	}
}

// Send sends a request.
func (s *Stream) Send(req *pushmeshv1.SubscribeRequest) {
	s.t.Helper()
	_ = s.rpc.Send(req) // what it fails with Next says better
}

// Next is the next event, or what the stream ended with.
func (s *Stream) Next() (*pushmeshv1.SubscribeEvent, error) {
	for len(s.events) == 0 {
		resp, err := s.rpc.Recv()
		if err != nil {
			return nil, err
		}
		s.events = resp.GetEvents()
	}
	e := s.events[0]
	s.events = s.events[1:]
	if w := e.GetWelcome(); w != nil {
		s.Connection = w.GetConnectionId()
	}
	return e, nil
}

// Must is the next event.
func (s *Stream) Must() *pushmeshv1.SubscribeEvent {
	s.t.Helper()
	e, err := s.Next()
	if err != nil {
		s.t.Fatalf("the stream ended: %v", err)
	}
	return e
}

// Subscribe asks for a subscription and returns the first event of the two that answer it.
func (s *Stream) Subscribe(m *wirev1.Subscribe) (*wirev1.Subscribed, *wirev1.Error) {
	s.t.Helper()
	s.Send(&pushmeshv1.SubscribeRequest{Request: &pushmeshv1.SubscribeRequest_Subscribe{Subscribe: m}})
	var others []*pushmeshv1.SubscribeEvent
	for {
		e := s.Must()
		answer, refusal := e.GetSubscribed(), e.GetError()
		if answer.GetId() == m.GetId() && answer != nil || refusal.GetRef() == m.GetId() && refusal != nil {
			s.events = append(others, s.events...)
			return answer, refusal
		}
		others = append(others, e)
	}
}

// Message is the next message; other events are passed over.
func (s *Stream) Message() *wirev1.Message {
	s.t.Helper()
	for {
		if m := s.Must().GetMessage(); m != nil {
			return m
		}
	}
}

// Ack ACKs one message of the present connection.
func (s *Stream) Ack(m *wirev1.Message) {
	s.t.Helper()
	s.Send(&pushmeshv1.SubscribeRequest{Connection: s.Connection, Request: &pushmeshv1.SubscribeRequest_Ack{
		Ack: &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: m.GetTopic(), Seq: m.GetSeq()}}},
	}})
}

// HalfClose says that nothing more is sent, and returns what the stream ends with.
func (s *Stream) HalfClose() error {
	s.t.Helper()
	if err := s.rpc.CloseSend(); err != nil {
		return err
	}
	return s.End()
}

// End is what the stream ends with; events before are passed over. nil: it ended OK.
func (s *Stream) End() error {
	for {
		if _, err := s.Next(); err != nil {
			if e := code.From(err); e.Message == "EOF" {
				return nil
			}
			return err
		}
	}
}

// Close cuts the stream off.
func (s *Stream) Close() { s.cancel() }
