package pushmesh

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// fakeSubscribe is a SubscribeService whose streams are the test's.
type fakeSubscribe struct {
	pushmeshv1.UnimplementedSubscribeServiceServer
	serve func(grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error
}

func (f *fakeSubscribe) Subscribe(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
	return f.serve(rpc)
}

func startSubscribe(t *testing.T, f *fakeSubscribe) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pushmeshv1.RegisterSubscribeServiceServer(server, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return ln.Addr().String()
}

func events(list ...*pushmeshv1.SubscribeEvent) *pushmeshv1.SubscribeResponse {
	return &pushmeshv1.SubscribeResponse{Events: list}
}

// A subscriber works through a router as over TCP; its last ACK arrives before Close returns, and
// what it can't do there is refused.
func TestThroughARouter(t *testing.T) {
	acked := make(chan uint64, 10)
	half := make(chan struct{})
	addr := startSubscribe(t, &fakeSubscribe{serve: func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
		for {
			req, err := rpc.Recv()
			if err != nil {
				close(half)
				return nil
			}
			switch r := req.GetRequest().(type) {
			case *pushmeshv1.SubscribeRequest_Hello:
				_ = rpc.Send(events(&pushmeshv1.SubscribeEvent{Event: &pushmeshv1.SubscribeEvent_Welcome{
					Welcome: &wirev1.Welcome{ClientId: r.Hello.GetClientId(), HeartbeatMs: 600_000, PublishWindow: 8},
				}}))
			case *pushmeshv1.SubscribeRequest_Subscribe:
				_ = rpc.Send(events(
					&pushmeshv1.SubscribeEvent{Event: &pushmeshv1.SubscribeEvent_Subscribed{Subscribed: &wirev1.Subscribed{Id: r.Subscribe.GetId(), Epoch: 7, Recovered: true}}},
					&pushmeshv1.SubscribeEvent{Event: &pushmeshv1.SubscribeEvent_Message{Message: &wirev1.Message{Topic: "a", Seq: 1, Payload: make([]byte, 100_000)}}},
				))
			case *pushmeshv1.SubscribeRequest_Ack:
				for _, e := range r.Ack.GetEntries() {
					acked <- e.GetSeq()
				}
			}
		}
	}})
	s, err := NewBackend(SubscriberConfig{Addrs: []string{addr}, ClientID: "worker", DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan int, 1)
	handle := func(_ context.Context, d *Delivery) error {
		got <- len(d.Payload)
		return nil
	}
	if _, err := s.Subscribe(ctx, "a", handle, WithAck()); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n != 100_000 {
		t.Errorf("%d bytes", n)
	}
	if _, err := s.Publish(ctx, ClientMessage{Topic: "a"}); CodeOf(err) != CodeUnsupported {
		t.Errorf("publish: %v", err)
	}
	if err := s.Close(in(t, patience)); err != nil {
		t.Error(err)
	}
	<-half
	if seq := <-acked; seq != 1 {
		t.Errorf("ACKed %d", seq)
	}
}

// What the stream ends with is what the connection ends with.
func TestARoutersRefusalIsTheSubscribers(t *testing.T) {
	addr := startSubscribe(t, &fakeSubscribe{serve: func(grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
		return status.Error(codes.PermissionDenied, "not you")
	}})
	s, err := NewBackend(SubscriberConfig{Addrs: []string{addr}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	var e *Error
	if err := s.Err(); !errors.As(err, &e) || e.Code != CodeForbidden || e.Message != "not you" {
		t.Errorf("ended with %v", err)
	}
}
