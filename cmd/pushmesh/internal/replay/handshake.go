package replay

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

const (
	handshakeTimeout = 10 * time.Second
	heartbeat        = 30 * time.Second
	subscriptionID   = 1
)

// handshake says Hello and Subscribe and reads Welcome and Subscribed, exactly: what follows stays
// in the socket.
func (s *subscriber) handshake(ctx context.Context, conn net.Conn) error {
	out, err := s.greeting(ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Write(out); err != nil {
		return err
	}
	var welcome wirev1.Welcome
	if err := expect(conn, wirev1.FrameType_FRAME_TYPE_WELCOME, &welcome); err != nil {
		return err
	}
	var subscribed wirev1.Subscribed
	if err := expect(conn, wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &subscribed); err != nil {
		return err
	}
	return s.subscribed(&subscribed)
}

func (s *subscriber) greeting(ctx context.Context) ([]byte, error) {
	hello := &wirev1.Hello{
		Version: wire.Version, ClientId: fmt.Sprintf("replay-%x-%d", s.fleet.run, s.n), Agent: "pushmesh-replay",
		HeartbeatMs: uint32(heartbeat / time.Millisecond), ReceiveWindow: s.fleet.window,
	}
	if s.fleet.token != nil {
		var err error
		if hello.Token, err = s.fleet.token(ctx); err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
	}
	out, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, hello)
	if err != nil {
		return nil, err
	}
	sub := &wirev1.Subscribe{Id: subscriptionID, Filter: s.topic, Ack: true}
	if s.started {
		epoch, seq := s.check.Position()
		sub.Start, sub.Epoch, sub.Seq = wirev1.Start_START_AFTER_SEQ, epoch, seq
	}
	return wire.Append(out, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, sub)
}

// subscribed takes the mesh's promise: what is published from now on, or after our position, will
// come.
func (s *subscriber) subscribed(m *wirev1.Subscribed) error {
	if !s.started {
		s.started = true
		s.check.Start(m.GetEpoch(), m.GetHead())
		s.fleet.meter.subscribed.Add(1)
		s.fleet.meter.move()
		return nil
	}
	if !m.GetRecovered() {
		s.fleet.meter.failed(fmt.Errorf("%s: %d messages can't be recovered", s.topic, m.GetMissed()))
		s.check.Skip(m.GetEpoch(), m.GetHead())
	}
	return nil
}

// expect reads frames until one of type t, into m; an Error or GoAway ends it.
func expect(conn net.Conn, t wirev1.FrameType, m proto.Message) error {
	for {
		got, body, err := wire.Read(conn, nil, wire.DefaultMaxFrame)
		if err != nil {
			return err
		}
		if got == t {
			return proto.Unmarshal(body, m)
		}
		if err := refusal(got, body); err != nil {
			return err
		}
	}
}

// refusal is the *code.Error of an Error or GoAway frame; nil for any other.
func refusal(t wirev1.FrameType, body []byte) error {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		var e wirev1.Error
		if err := proto.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("an Error frame: %w", err)
		}
		return code.Retry(e.GetCode(), time.Duration(e.GetRetryAfterMs())*time.Millisecond, e.GetMessage())
	case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		var g wirev1.GoAway
		if err := proto.Unmarshal(body, &g); err != nil {
			return fmt.Errorf("a GoAway frame: %w", err)
		}
		return code.Retry(g.GetCode(), time.Duration(g.GetReconnectAfterMs())*time.Millisecond, g.GetReason())
	}
	return nil
}
