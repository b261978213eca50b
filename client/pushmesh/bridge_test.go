package pushmesh

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// inBridge has a subscriber through a router whose streams are served so.
func inBridge(t *testing.T, serve func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse], stream int) error) *Subscriber {
	t.Helper()
	var streams atomic.Int32
	addr := startSubscribe(t, &fakeSubscribe{serve: func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
		n := int(streams.Add(1))
		if _, err := rpc.Recv(); err != nil {
			return err
		}
		err := rpc.Send(events(&pushmeshv1.SubscribeEvent{Event: &pushmeshv1.SubscribeEvent_Welcome{Welcome: &wirev1.Welcome{HeartbeatMs: 600_000, PublishWindow: 8}}}))
		if err != nil {
			return err
		}
		return serve(rpc, n)
	}})
	return newTestSubscriber(t, SubscriberConfig{Addrs: []string{addr}, Dial: throughRouter()})
}

// What does not travel is refused here, each by its name, and nothing else of the connection
// suffers.
func TestWhatARouterDoesNotTakeIsRefused(t *testing.T) {
	s := inBridge(t, func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse], _ int) error {
		<-rpc.Context().Done()
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		_, err := s.Publish(ctx, ClientMessage{Topic: "a"})
		if CodeOf(err) != CodeUnsupported || !strings.Contains(err.Error(), "Producer") {
			t.Error(err)
		}
		err = check(ctx, s, "seat")
		if CodeOf(err) != CodeUnsupported || !strings.Contains(err.Error(), "ClaimService") {
			t.Error(err)
		}
	}
	if st := s.Stats(); st.Connects != 1 || !st.Connected {
		t.Errorf("stats %+v", st)
	}
}

// However a router's stream ends, the subscriber comes back where that can help, and hears why
// where it can't. What it can't read is no end of the subscriber.
func TestEndsOfARoutersStream(t *testing.T) {
	for name, end := range map[string]func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error{
		"it ends": func(grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
			return nil
		},
		"it fails": func(grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
			return status.Error(codes.Unavailable, "not now")
		},
		"it talks nonsense": func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse]) error {
			bad := &pushmeshv1.SubscribeResponse{}
			bad.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 1))
			if err := rpc.Send(bad); err != nil {
				return err
			}
			<-rpc.Context().Done()
			return nil
		},
	} {
		s := inBridge(t, func(rpc grpc.BidiStreamingServer[pushmeshv1.SubscribeRequest, pushmeshv1.SubscribeResponse], stream int) error {
			if stream == 1 {
				return end(rpc)
			}
			<-rpc.Context().Done()
			return nil
		})
		waitUntil(t, func() bool {
			st := s.Stats()
			return st.Connects >= 2 && st.Connected || s.Err() != nil
		})
		if s.Err() != nil {
			t.Errorf("%s, and the subscriber with it: %v", name, s.Err())
		}
	}
}

// A dial that nobody waits for any more ends, with its stream, and leaves nothing behind.
func TestADialThroughARouterIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := throughRouter()(ctx, nobody); err == nil {
		_ = conn.Close()
		t.Error("connected to nobody")
	}
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hung.Close() }()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if conn, err := throughRouter()(ctx, hung.Addr().String()); err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) {
			t.Error("a hung router is read from")
		}
		_ = conn.Close()
	}
}
